"""How commands find a cluster: its name servers, TLS, an account, or a context that has them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from congreve.base.errors import CongreveError
from congreve.console.contexts import Context, ContextFile
from congreve.console.loadgen.generator import SECRET_KEY
from congreve.console.report import Rows, Shown, output_option, show

if TYPE_CHECKING:
    from congreve.client.admin import AdminClient

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_NAMESRV = "127.0.0.1:9876"
_META = "congreve.console.connection"


def cluster_options(command: F) -> F:
    """Add the options of namesrv_option() and access_option()."""
    return namesrv_option(access_option(command))


def namesrv_option(command: F) -> F:
    """Add the options of a command that finds a cluster.

    The command gets the name servers as the argument `namesrv`: those of `-n`, otherwise of the
    context of `--context`, of NAMESRV_ADDR, or of the context in use. `--tls` is for connection().
    """
    named = click.option(
        "--context",
        envvar="CONGREVE_CONTEXT",
        expose_value=False,
        is_eager=True,
        callback=_keep("context"),
        metavar="NAME",
        help="The cluster of this name: see `congreve context`.",
    )
    servers = click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        callback=_chosen,
        metavar="HOST:PORT;...",
        help=f"Name servers. [default: those of the context, or {DEFAULT_NAMESRV}]",
    )
    return servers(named(tls_option(command)))


def tls_option(command: F) -> F:
    """Add the option `--tls`, which is for connection()."""
    return click.option(
        "--tls",
        envvar="CONGREVE_CLIENT_TLS",
        expose_value=False,
        callback=_keep("tls"),
        metavar="FILE",
        help="Encrypt all connections, by the keys tls.client.* of this tls.properties.",
    )(command)


def access_option(command: F) -> F:
    """Add the option `--access-key`, which is for connection()."""
    return click.option(
        "--access-key",
        envvar="CONGREVE_ACCESS_KEY",
        expose_value=False,
        callback=_keep("access_key"),
        metavar="KEY",
        help=f"Sign requests as this account; its secret is in the environment as {SECRET_KEY}.",
    )(command)


def connection() -> dict[str, Any]:
    """Settings for the client of the running command. Raises click.BadParameter, CongreveError."""
    context = click.get_current_context()
    named: Context = context.meta.get(f"{_META}.chosen") or Context()
    path = context.meta.get(f"{_META}.tls") or named.tls
    key = context.meta.get(f"{_META}.access_key") or named.access_key
    settings: dict[str, Any] = {"ssl": None, "credentials": None}
    if path:
        from congreve.client import tls_context

        settings["ssl"] = tls_context(path)
    if key:
        from congreve.client import Credentials

        secret = os.environ.get(SECRET_KEY)
        if secret is None:
            raise click.BadParameter(
                f"the account {key} needs its secret: set the environment variable {SECRET_KEY}"
            )
        settings["credentials"] = Credentials(access_key=key, secret_key=secret)
    return settings


def ask(namesrv: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """The result of `question` for a client of the cluster. Raises CongreveError as it does."""
    from congreve.client.admin import AdminClient

    async def run() -> T:
        async with AdminClient(namesrv, **connection()) as admin:
            return await question(admin)

    with topic_hints(namesrv):
        return asyncio.run(run())


@contextmanager
def topic_hints(namesrv: str) -> Iterator[None]:
    """Let the error of an unknown topic name one that is spelled alike."""
    from congreve.client.admin import AdminClient
    from congreve.client.errors import RouteNotFoundError

    async def names() -> list[str]:
        async with AdminClient(namesrv, **connection()) as admin:
            return await admin.topics()

    try:
        yield
    except RouteNotFoundError as error:
        if error.unknown is None:
            raise
        hint = did_you_mean(error.unknown, asyncio.run(names()))
        raise RouteNotFoundError(f"{error}{hint}") from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name; empty if no known one is spelled alike."""
    from congreve.base.settings import closest_key

    close = closest_key(name, known)
    return "" if close is None else f": did you mean {close}?"


def asks_cluster(
    shown: Shown | None = None,
) -> Callable[[Callable[..., Awaitable[Rows]]], Callable[..., None]]:
    """Make a command that prints the rows of a question; `shown` is that of show().

    The question gets a client of the cluster as `admin`, and the other arguments of the command.
    """

    def decorate(question: Callable[..., Awaitable[Rows]]) -> Callable[..., None]:
        @cluster_options
        @output_option
        @wraps(question)
        def command(namesrv: str, output: str, **arguments: Any) -> None:
            show(ask(namesrv, partial(question, **arguments)), output, shown=shown)

        return command

    return decorate


def _keep(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        context.meta[f"{_META}.{name}"] = value

    return keep


def _chosen(context: click.Context, option: click.Parameter, value: str | None) -> str:
    """The name servers of the command; a context that names them is kept for connection()."""
    assert option.name is not None
    source = context.get_parameter_source(option.name)
    if value and source is ParameterSource.COMMANDLINE:
        return value
    wanted = context.meta.get(f"{_META}.context")
    if value and not wanted:
        return value
    try:
        found = ContextFile.of_user(os.environ).find(wanted)
    except CongreveError as error:
        raise click.UsageError(str(error), context) from error
    context.meta[f"{_META}.chosen"] = found
    return found.namesrv or DEFAULT_NAMESRV
