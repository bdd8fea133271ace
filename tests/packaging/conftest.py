"""One wheel, and one environment with nothing but it, for all tests here."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "unoptimized"


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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout, compiled with -O0, because only its content is tested."""
    folder = tmp_path_factory.mktemp("wheel")
    # A build folder of its own: `make wheel` ships no module that was compiled here.
    BUILD.mkdir(parents=True, exist_ok=True)
    configuration = BUILD / "setup.cfg"
    configuration.write_text(f"[build]\nbuild_base = {BUILD}\n")
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
    """The `bin` of an environment into which pip installed the wheel and its dependencies."""
    environment = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(environment, symlinks=True)
    pip("--python", environment / "bin" / "python", "install", "--no-compile", repaired)
    return environment / "bin"
