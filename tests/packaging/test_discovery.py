"""Spark looks for its sources among the top-level modules that a plain interpreter shows."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

# What pyspark's lookup_data_sources does, in an interpreter without PYTHONPATH.
LOOK_UP = """
import importlib, pkgutil
found = [m.name for m in pkgutil.iter_modules() if m.name.startswith("pyspark_")]
print([importlib.import_module(name).DefaultSource.name() for name in found])
"""


def test_an_installed_congreve_is_found_without_register() -> None:
    pytest.importorskip("pyspark")
    try:
        metadata.distribution("congreve")
    except metadata.PackageNotFoundError:
        pytest.skip("congreve is not installed for this interpreter, as `make build` does it")
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOOK_UP], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['rocketmq']", done.stderr
