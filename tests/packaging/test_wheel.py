"""The wheel has every compiled module with its stub and its .pxd, and works without the checkout.

The checkout of a developer always has all files in their places; what pyproject.toml forgot shows
only here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
EXTENSION = str(sysconfig.get_config_var("EXT_SUFFIX"))

IMPORT_ALL = """
import importlib, pathlib, sys
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module.__file__
"""


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments],
        cwd=ROOT,
        # What is in the wheel matters here, not how fast it is.
        env={**os.environ, "CONGREVE_CFLAGS": "-O0 -g0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    return next(folder.glob("congreve-*.whl"))


@pytest.mark.slow
def test_the_wheel_lacks_no_file_of_the_checkout(wheel: Path) -> None:
    expected = set()
    for package, folder in PACKAGES.items():
        inside = package.replace(".", "/")
        for path in (ROOT / folder).iterdir():
            if path.suffix in (".py", ".pyi", ".pxd", ".properties") or path.name == "py.typed":
                expected.add(f"{inside}/{path.name}")
            elif path.suffix == ".pyx":
                expected.add(f"{inside}/{path.stem}{EXTENSION}")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not expected - names
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"congreve", "pyspark_congreve.py"}


@pytest.mark.slow
def test_an_installed_wheel_imports_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--no-deps", "--target", str(site), str(wheel))
    modules = sorted(
        f"{package}.{path.stem}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder).glob("*.py*")
        if path.suffix in (".py", ".pyx") and path.stem not in ("__init__", "__main__")
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
