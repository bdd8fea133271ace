"""One wheel, and one environment with nothing but it, for all tests here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "packaging"
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
EXTENSION = str(sysconfig.get_config_var("EXT_SUFFIX"))


def run(*command: str | Path, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str | Path, **environment: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", *arguments, **environment)


def copy_compiled_modules(target: Path) -> None:
    """Copy the modules that `make build` compiled.

    setup.py compiles only those that are missing or older than their source.
    """
    for package, folder in PACKAGES.items():
        for source in (ROOT / folder).rglob("*.pyx"):
            module = source.with_name(source.stem + EXTENSION)
            if module.is_file():
                copy = target / package.replace(".", "/") / module.relative_to(ROOT / folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(module, copy)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout. Only its content is tested, so it gets the compiled modules of the
    checkout; if some have to be compiled again, without optimization."""
    folder = tmp_path_factory.mktemp("wheel")
    # A separate build folder: `make wheel` ships no module that was compiled here.
    shutil.rmtree(BUILD, ignore_errors=True)
    copy_compiled_modules(BUILD / "lib")
    configuration = BUILD / "setup.cfg"
    configuration.write_text(f"[build]\nbuild_base = {BUILD}\nbuild_lib = {BUILD / 'lib'}\n")
    pip(
        *("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, "."),
        CONGREVE_CFLAGS="-O0 -g0",
        DIST_EXTRA_CONFIG=str(configuration),
    )
    return next(folder.glob("congreve-*.whl"))


@pytest.fixture(scope="session")
def repaired(wheel: Path) -> Path:
    """The wheel as `make wheel` leaves it."""
    folder = wheel.parent / "repaired"
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel)
    return next(folder.glob("congreve-*.whl"))


@pytest.fixture(scope="session")
def installed(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment into which pip installed the wheel with the web console."""
    environment = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip("--python", python, "install", "--no-compile", f"{repaired}[console]")
    return environment / "bin"
