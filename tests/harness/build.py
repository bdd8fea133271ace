"""Fetches and builds the reference and the drivers of the official clients after each change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "interop"


def classpath(source: str = "java") -> str:
    """The jars of a driver and of the RocketMQ that it drives: "java" is the reference, "java5"
    RocketMQ 5. Runs Maven when its pom.xml or a source has changed."""
    target = BUILD / source
    with _alone(target):
        if _changed(target, HERE / source, ("*.xml", "*.java")):
            command = ["mvn", "-q", "-B", "-f", str(HERE / source / "pom.xml")]
            command += [f"-Dinterop.build={target}", "package"]
            # Offline first: the local repository may have everything.
            if _run([*command, "-o"], check=False) != 0:
                _run(command)
            _done(target, HERE / source, ("*.xml", "*.java"))
    return f"{target / 'interop.jar'}:{target / 'lib'}/*"


def go_driver() -> Path:
    """The Go client's driver program."""
    return go_program(HERE / "go")


def go_program(source: Path) -> Path:
    """The program of a folder with a go.mod; Go fetches the modules that it names."""
    target = BUILD / source.name
    patterns = ("*.go", "go.mod", "go.sum")
    with _alone(target):
        if _changed(target, source, patterns):
            _run(["go", "build", "-o", str(target / "driver"), "."], cwd=source)
            _done(target, source, patterns)
    return target / "driver"


def node_modules() -> Path:
    """The folder with the official gRPC client for Node.js, and the program that drives it."""
    source, target = HERE / "node", BUILD / "node"
    patterns = ("*.json", "*.js")
    with _alone(target):
        if _changed(target, source, patterns):
            for path in source.iterdir():
                shutil.copy(path, target)
            _run(["npm", "ci", "--no-audit", "--no-fund"], cwd=target)
            _done(target, source, patterns)
    return target


def rust_program() -> Path:
    """The program that drives the official gRPC client for Rust; Cargo fetches the client."""
    source, target = HERE / "rust", BUILD / "rust"
    patterns = ("*.rs", "Cargo.toml")
    with _alone(target):
        if _changed(target, source, patterns):
            _run(["cargo", "build", "--target-dir", str(target)], cwd=source)
            _done(target, source, patterns)
    return target / "debug" / "interop"


def missing_tools(*names: str) -> list[str]:
    """The programs that are not installed."""
    return [name for name in names if shutil.which(name) is None]


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until another test run has finished its build."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(source: Path, patterns: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in source.rglob(pattern)):
        digest.update(path.relative_to(source).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _changed(target: Path, source: Path, patterns: tuple[str, ...]) -> bool:
    stamp = target / "stamp"
    return not stamp.is_file() or stamp.read_text() != _digest(source, patterns)


def _done(target: Path, source: Path, patterns: tuple[str, ...]) -> None:
    (target / "stamp").write_text(_digest(source, patterns))


def _run(command: list[str], *, cwd: Path | None = None, check: bool = True) -> int:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.returncode


if __name__ == "__main__":
    if not missing_tools("java", "mvn"):
        classpath()
        classpath("java5")
    if not missing_tools("go"):
        go_driver()
        go_program(HERE / "go5")
    if not missing_tools("node", "npm"):
        node_modules()
