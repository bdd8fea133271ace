"""Compile the Cython modules. Everything declarative is in pyproject.toml."""

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from functools import cache
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

TOOL = tomllib.loads(Path("pyproject.toml").read_text())["tool"]
SETUPTOOLS = TOOL["setuptools"]
PACKAGE_DIR: dict[str, str] = SETUPTOOLS["package-dir"]
# Sources of the client, which is all that is compiled on other systems than Linux, and with
# CONGREVE_CLIENT_ONLY=1.
PORTABLE: list[str] = TOOL["congreve"]["portable"]
CLIENT_ONLY = sys.platform != "linux" or os.environ.get("CONGREVE_CLIENT_ONLY", "") not in ("", "0")
NAMESPACE = Path("build/namespace")
# What compiled modules have in common (memoryviews, functions, exceptions); Cython generates it.
SHARED = "congreve.base.cython_shared"

JOBS = int(os.environ.get("CONGREVE_BUILD_JOBS", os.cpu_count() or 1))
# CONGREVE_DEBUG=1 builds with bounds checks, C asserts and symbols.
DEBUG = os.environ.get("CONGREVE_DEBUG", "") not in ("", "0")
# CONGREVE_CFLAGS takes the place of these; without -g0 compiling takes half as long again.
COMPILE_ARGS = (
    ["-O0", "-g", "-UNDEBUG"] if DEBUG else os.environ.get("CONGREVE_CFLAGS", "-O3 -g0").split()
)
# Folders whose modules need a C library. Where its header is missing they are left out, with a
# line that says so.
LIBRARIES = {
    Path("io_backends/uring"): ("uring", "liburing.h"),
    Path("remoting/http2"): ("nghttp2", "nghttp2/nghttp2.h"),
}
DIRECTIVES = {
    "language_level": "3",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "auto_pickle": False,
}


def link_packages() -> None:
    """Show the folders as they are imported.

    setuptools follows package-dir; Cython and mypy know nothing of it and follow these links.
    """
    for package, folder in PACKAGE_DIR.items():
        root = "." not in package
        at = NAMESPACE / package.replace(".", "/")
        sources = [p for p in Path(folder).iterdir() if p.is_file()] if root else [Path(folder)]
        for source in sources:
            link = at / source.name if root else at
            link.parent.mkdir(parents=True, exist_ok=True)
            make_link(link, source)
    for module in SETUPTOOLS["py-modules"]:
        make_link(NAMESPACE / f"{module}.py", Path(f"{module}.py"))


def make_link(link: Path, source: Path) -> None:
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(source, link.parent))


@cache
def has_header(library: str, header: str) -> bool:
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    found = subprocess.run(
        [*compiler, "-E", "-x", "c", "-"],
        input=f"#include <{header}>\n".encode(),
        capture_output=True,
        check=False,
    )
    if found.returncode != 0:
        sys.stderr.write(
            f"congreve: built without lib{library}: its header is missing "
            f"(Debian: apt-get install lib{library}-dev)\n"
        )
    return found.returncode == 0


@cache
def link_args(library: str) -> list[str]:
    """Its static archive where one can be linked here, so that a wheel needs nothing of the
    machine. Debian's archive of nghttp2 is for programs only.
    """
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    archive = f"lib{library}.a"
    found = subprocess.run(
        [*compiler, f"-print-file-name={archive}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return [found] if os.path.isabs(found) and is_for_modules(found) else [f"-l{library}"]


def is_for_modules(archive: str) -> bool:
    """Whether a shared object can be linked of the archive."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        all_of_it = ["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"]
        linked = subprocess.run(
            [*compiler, "-shared", *all_of_it, "-o", f"{folder}/all.so"],
            capture_output=True,
            check=False,
        )
    return linked.returncode == 0


def packages() -> list[str]:
    """Every package: those that package-dir names, and those inside them."""
    inner = (
        f"{package}.{name}"
        for package, folder in PACKAGE_DIR.items()
        for name in find_packages(folder)
    )
    return sorted([*PACKAGE_DIR, *inner])


def extensions() -> list[Extension]:
    """One extension a .pyx; C files beside it that share its stem (NAME_*.c) are compiled in."""
    found = [
        Extension(
            ".".join([package, *source.relative_to(folder).with_suffix("").parts]),
            [str(source), *map(str, sorted(source.parent.glob(f"{source.stem}_*.c")))],
            include_dirs=[str(source.parent)],
            depends=[str(header) for header in sorted(source.parent.glob("*.h"))],
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=(
                link_args(LIBRARIES[source.parent][0]) if source.parent in LIBRARIES else []
            ),
        )
        for package, folder in PACKAGE_DIR.items()
        for source in sorted(Path(folder).rglob("*.pyx"))
        if not CLIENT_ONLY or any(map(source.match, PORTABLE))
        if source.parent not in LIBRARIES or has_header(*LIBRARIES[source.parent])
    ]
    if not found:
        raise SystemExit("no .pyx found: is this an sdist without its sources?")
    shared = Extension(SHARED, ["base/cython_shared.c"], extra_compile_args=COMPILE_ARGS)
    return [*found, shared]


link_packages()
setup(
    packages=packages(),
    ext_modules=cythonize(
        extensions(),
        include_path=[str(NAMESPACE)],
        build_dir="build/cython",
        nthreads=JOBS,
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=SHARED,
    ),
    options={"build_ext": {"parallel": JOBS}},
)
