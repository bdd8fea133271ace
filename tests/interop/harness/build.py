"""Fetch and build the reference, the Java driver and the Go driver, once for each change."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

INTEROP = Path(__file__).resolve().parent.parent
BUILD = INTEROP.parent.parent / "build" / "interop"


def classpath() -> str:
    """The driver's and the reference's jars: Maven runs where pom.xml or a source has changed."""
    target = BUILD / "java"
    if _changed(target, INTEROP / "java", ("*.xml", "*.java")):
        command = ["mvn", "-q", "-B", "-f", str(INTEROP / "java" / "pom.xml")]
        command += [f"-Dinterop.build={target}", "package"]
        # Without the network first: what is already in the local repository needs none.
        if _run([*command, "-o"], check=False) != 0:
            _run(command)
        _done(target, INTEROP / "java", ("*.xml", "*.java"))
    return f"{target / 'interop.jar'}:{target / 'lib'}/*"


def go_driver() -> Path:
    """The Go client's driver program."""
    target = BUILD / "go"
    patterns = ("*.go", "go.mod", "go.sum")
    if _changed(target, INTEROP / "go", patterns):
        _run(["go", "build", "-o", str(target / "driver"), "."], cwd=INTEROP / "go")
        _done(target, INTEROP / "go", patterns)
    return target / "driver"


def missing_tools(*names: str) -> list[str]:
    """Those of the programs that are not installed."""
    return [name for name in names if shutil.which(name) is None]


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
