"""Congreve: a message broker of the RocketMQ 4.9 family.

The packages are ``congreve.io_backends``, ``engine``, ``remoting``, ``namesrv``, ``broker``,
``client``, ``spark`` and ``console``; docs/architecture.md says what each is for.
"""

from importlib.util import find_spec

__version__ = "0.1.0"

#: The zip file or wheel that this package was imported from, None where it lies in a folder.
ARCHIVE: str | None = getattr(__spec__.loader, "archive", None) if __spec__ is not None else None
if ARCHIVE is not None:
    from congreve.archive import unpacked

    __path__ = [f"{unpacked(ARCHIVE)}/congreve"]

if find_spec("congreve.engine") is None:
    raise ImportError(
        "a bare checkout is not importable: run `make build` (or pip install -e .) first, "
        "with this same Python"
    )
