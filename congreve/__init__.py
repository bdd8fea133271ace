"""Congreve: a message broker of the RocketMQ 4.9 family.

To embed it in a program::

    with congreve.serve("data") as node:  # or: async with
        ...  # node.address is for RocketMQ clients, node.producer() and node.consumer() are ours

``open_store`` reads a store's files. ``Broker`` and ``NameServer`` are the two servers, each on its
own. Producers and consumers are in ``congreve.client``. docs/embedding.md is the guide, and
docs/architecture.md describes each package. This module imports a name at its first use.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from congreve.base.errors import CongreveError
    from congreve.broker.broker import Broker
    from congreve.broker.setting_types import NodeSettings
    from congreve.client import Message
    from congreve.namesrv.server import NameServer
    from congreve.node import AsyncNode, Node, serve
    from congreve.store_reader import StoreReader, open_store

__all__ = [
    "AsyncNode",
    "Broker",
    "CongreveError",
    "Message",
    "NameServer",
    "Node",
    "NodeSettings",
    "StoreReader",
    "open_store",
    "serve",
]

#: The zip file or wheel that this package was imported from, None if it is in a folder.
ARCHIVE: str | None = getattr(__spec__.loader, "archive", None) if __spec__ is not None else None
if ARCHIVE is not None:
    from congreve.archive import unpacked

    __path__ = [f"{unpacked(ARCHIVE)}/congreve"]

if find_spec("congreve.base") is None:
    raise ImportError(
        "a bare checkout is not importable: run `make build` (or pip install -e .) first, "
        "with this same Python"
    )

from congreve.base.version import __version__ as __version__  # noqa: E402

_MODULES = {
    "AsyncNode": "congreve.node",
    "Broker": "congreve.broker.broker",
    "CongreveError": "congreve.base.errors",
    "Message": "congreve.client",
    "NameServer": "congreve.namesrv.server",
    "Node": "congreve.node",
    "NodeSettings": "congreve.broker.setting_types",
    "StoreReader": "congreve.store_reader",
    "open_store": "congreve.store_reader",
    "serve": "congreve.node",
}

if not TYPE_CHECKING:  # for which each name would exist

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            from congreve.base.extras import missing_package

            raise missing_package(error) or error from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
