"""Options that classes hand on to their base classes."""

import ssl as tls
from collections.abc import Mapping
from typing import TypedDict, get_args

from congreve.remoting.messages.signature import Credentials


class ConnectionOptions(TypedDict, total=False):
    """Options of every client; see ClientInstance (RocketMQ: ClientConfig)."""

    credentials: Credentials | None
    ssl: tls.SSLContext | None
    namespace: str | None


def check_options(client: object, given: Mapping[str, object], known: type) -> None:
    """Raises TypeError when an option is none of the TypedDict `known`. It names the class of
    `client`, which the user wrote, and not the base class that would notice."""
    for name in given:
        if name not in known.__annotations__:
            from difflib import get_close_matches
            from inspect import signature

            names = [*known.__annotations__, *signature(type(client)).parameters]
            close = get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            for settings in get_args(known.__annotations__.get("settings")):
                if name in getattr(settings, "__struct_fields__", ()):
                    hint = f"; use settings={settings.__name__}({name}=...)"
            raise TypeError(
                f"{type(client).__name__}() got an unexpected keyword argument {name!r}{hint}"
            )
