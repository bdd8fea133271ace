"""The wheel has every compiled module with its stub and its .pxd, and works without the checkout.

The checkout of a developer always has all files in their places; what pyproject.toml forgot shows
only here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import EXTENSION, PACKAGES, ROOT, pip
from tests.packaging.left_out import is_left_out

PLAIN = frozenset(
    (".py", ".pyi", ".pxd", ".properties", ".binpb", ".html", ".css", ".js", ".svg", ".LICENSE")
)

IMPORT_ALL = """
import importlib, pathlib, sys
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module.__file__
"""


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_checkout(wheel: Path) -> None:
    expected = set()
    for package, folder in PACKAGES.items():
        inside = package.replace(".", "/")
        for path in (ROOT / folder).rglob("*.*"):
            name = path.relative_to(ROOT / folder)
            if path.suffix in PLAIN or path.name == "py.typed":
                expected.add(f"{inside}/{name}")
            elif path.suffix == ".pyx" and not is_left_out(path):
                expected.add(f"{inside}/{name.with_suffix(EXTENSION)}")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not expected - names
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"congreve", "pyspark_congreve.py"}


@pytest.mark.slow
def test_an_installed_wheel_imports_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--no-deps", "--target", site, wheel)
    modules = sorted(
        ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts])
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx") and path.stem not in ("__init__", "__main__")
        if not is_left_out(path)
    )
    # -S: no .pth files, so that the checkout's own installation is not seen.
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_ALL, str(site), *modules],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{site}:{sysconfig.get_path('purelib')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
