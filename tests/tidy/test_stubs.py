"""Each .pyi says what its compiled module has: mypy's stubtest imports and compares them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.packaging.left_out import is_left_out

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
NAMESPACE = ROOT / "build" / "namespace"


def compiled_modules() -> list[str]:
    return sorted(
        ".".join([package, *path.relative_to(ROOT / folder).with_suffix("").parts])
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).rglob("*.pyx")
        if not is_left_out(path)
    )


def test_stubs_match_the_compiled_modules() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest", "--concise", "--ignore-unused-allowlist"),
            *(
                "--ignore-disjoint-bases",
                "--ignore-missing-stub",
                "--mypy-config-file",
                str(Path(__file__).with_name("stubtest.ini")),
            ),
            *("--allowlist", str(Path(__file__).with_name("stubtest_allowlist.txt"))),
            *compiled_modules(),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "MYPYPATH": str(NAMESPACE),
            "PYTHONPATH": str(NAMESPACE),
            "PYTHONSAFEPATH": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
