"""``congreve context``: names of clusters, for use instead of addresses, as kubectl has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from congreve.base.errors import CongreveError
from congreve.console.report import done, output_option, show
from congreve.remoting.messages.addresses import parse_name_servers

FILE = "congreve/contexts.json"


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to reach a cluster; an empty text is not set."""

    namesrv: str = ""
    tls: str = ""
    access_key: str = ""


class Contexts(msgspec.Struct):
    """All clusters by name, and the one in use."""

    current: str = ""
    contexts: dict[str, Context] = {}


class ContextFile:
    """The file of one user; it has no secrets."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> ContextFile:
        """That of CONGREVE_CONTEXTS, or in the user's folder of settings."""
        named = environment.get("CONGREVE_CONTEXTS")
        folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return cls(Path(named or os.path.join(folder, FILE)))

    def load(self) -> Contexts:
        """All contexts; none without a file. Raises CongreveError."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Contexts)
        except FileNotFoundError:
            return Contexts()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CongreveError(f"{self.path}: {error}: repair or remove it") from error

    def save(self, contexts: Contexts) -> None:
        """Replace the file. Raises CongreveError."""
        text = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(text + b"\n")
            made.replace(self.path)
        except OSError as error:
            raise CongreveError(f"{self.path} cannot be written: {error}") from error

    def find(self, name: str | None) -> Context:
        """A context by its name, or the one in use; without one, an empty one.

        Raises CongreveError for an unknown name.
        """
        known = self.load()
        wanted = name or known.current
        return self._of(known, wanted) if wanted else Context()

    def _of(self, known: Contexts, name: str) -> Context:
        if name not in known.contexts:
            names = ", ".join(sorted(known.contexts)) or "none"
            raise CongreveError(f"there is no context {name}: {self.path} has {names}")
        return known.contexts[name]

    def add(self, name: str, context: Context) -> None:
        """Add or replace a context; the first one is in use at once."""
        known = self.load()
        known.contexts[name] = context
        known.current = known.current or name
        self.save(known)

    def use(self, name: str) -> None:
        """Commands use this one from now on."""
        known = self.load()
        self._of(known, name)
        known.current = name
        self.save(known)

    def remove(self, name: str) -> None:
        """Forget a context."""
        known = self.load()
        self._of(known, name)
        del known.contexts[name]
        known.current = "" if known.current == name else known.current
        self.save(known)


@click.group(help="Name clusters, and choose one, instead of passing addresses.")
def context() -> None:
    """`-n` beats a context; CONGREVE_CONTEXT and `--context` choose another one."""


@context.command(help="Name a cluster.")
@click.argument("name")
@click.option("-n", "--namesrv", required=True, help="Name servers, host:port;host:port.")
@click.option("--tls", default="", metavar="FILE", help="Its tls.properties, as for --tls.")
@click.option("--access-key", default="", metavar="KEY", help="The account, without its secret.")
@output_option
def add(name: str, namesrv: str, tls: str, access_key: str, output: str) -> None:
    """Add a context."""
    tls = tls and str(Path(tls).absolute())
    parse_name_servers(namesrv)
    _file().add(name, Context(namesrv=namesrv, tls=tls, access_key=access_key))
    done(output, "", name=name, namesrv=namesrv.split(";"))


@context.command(help="Choose the cluster that commands use.")
@click.argument("name")
@output_option
def use(name: str, output: str) -> None:
    """Set the context in use."""
    _file().use(name)
    done(output, "", name=name, current=True)


@context.command(help="Forget a name.")
@click.argument("name")
@output_option
def remove(name: str, output: str) -> None:
    """Remove a context."""
    _file().remove(name)
    done(output, "", name=name, removed=True)


@context.command("list", help="Print all names; `current` is the one in use.")
@output_option
def list_contexts(output: str) -> None:
    """Print the contexts."""
    known = _file().load()
    rows = [
        {
            "name": name,
            "current": name == known.current,
            "namesrv": one.namesrv.split(";"),
            "tls": one.tls or None,
            "access_key": one.access_key or None,
        }
        for name, one in sorted(known.contexts.items())
    ]
    show(rows, output)


def _file() -> ContextFile:
    return ContextFile.of_user(os.environ)
