"""``congreve user`` and ``congreve acl``: the accounts in a broker's files."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from congreve.console.report import done, output_option, show

if TYPE_CHECKING:
    from congreve.broker.accounts.files import AccountFiles
    from congreve.remoting.messages.admin_bodies import PlainAccessConfig

F = TypeVar("F", bound=Callable[..., Any])

SECRET_BYTES = 24
"""Random bytes of a secret that the command generates."""


def folder_option(command: F) -> F:
    """Add the option `-f/--folder`; the command gets it as the argument `folder`."""
    return click.option(
        "-f",
        "--folder",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        default=Path("conf"),
        show_default=True,
        help="The folder of plain_acl.yml: that of broker.conf, or its aclFolder.",
    )(command)


@click.group(help="List, add and delete accounts in a broker's files.")
def user() -> None:
    """A running broker reads changed files again within a second."""


@click.group(help="Show and change what accounts may do.")
def acl() -> None:
    """A running broker reads changed files again within a second."""


@user.command("list", help="Print all accounts, without their secrets.")
@folder_option
@output_option
def list_users(folder: Path, output: str) -> None:
    """Print the accounts of all files."""
    shown = _open(folder).without_secrets()
    show(
        [
            {
                "access_key": each.access_key,
                "admin": each.admin,
                "topics": list(each.topic_perms or ()),
                "groups": list(each.group_perms or ()),
                "default": f"{each.default_topic_perm or 'DENY'}, "
                f"{each.default_group_perm or 'DENY'}",
                "white_address": each.white_remote_address or "",
            }
            for each in shown.plain_access_configs
        ],
        output,
    )


@user.command(help="Add an account without permissions, and print its secret once.")
@click.argument("key")
@click.option("--admin", is_flag=True, help="The account may do everything.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from stdin.")
@folder_option
@output_option
def add(key: str, admin: bool, secret_stdin: bool, folder: Path, output: str) -> None:
    """Add an account to plain_acl.yml (mqadmin: updateAclConfig)."""
    from congreve.broker.errors import ConfigError
    from congreve.remoting.messages.admin_bodies import PlainAccessConfig

    files = _open(folder)
    if _find(files, key) is not None:
        raise ConfigError(f"an account with accessKey={key} already exists")
    given = sys.stdin.readline().strip() if secret_stdin else ""
    made = given or secrets.token_urlsafe(SECRET_BYTES)
    files.update(PlainAccessConfig(access_key=key, secret_key=made, admin=admin))
    done(output, "" if given else made, access_key=key, secret_key=None if given else made)


@user.command(help="Delete an account.")
@click.argument("key")
@folder_option
@output_option
def delete(key: str, folder: Path, output: str) -> None:
    """Delete an account from its file (mqadmin: deleteAclConfig)."""
    _open(folder).delete(key)
    done(output, "", access_key=key, deleted=True)


@acl.command("show", help="Print the permissions of an account.")
@click.argument("key")
@folder_option
@output_option
def show_permissions(key: str, folder: Path, output: str) -> None:
    """Print one line for each permission."""
    account = _account(_open(folder), key)
    rows = [
        {"kind": kind, "name": name, "permission": perm}
        for kind, texts, default in (
            ("topic", account.topic_perms, account.default_topic_perm),
            ("group", account.group_perms, account.default_group_perm),
        )
        for name, perm in [*_table(texts).items(), ("(all others)", default or "DENY")]
    ]
    show(rows, output)


@acl.command("set", help="Set permissions of an account; its other permissions stay.")
@click.argument("key")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC=PUB|SUB")
@click.option("-g", "--group", "groups", multiple=True, metavar="GROUP=SUB")
@click.option("--default-topic", metavar="PERM", help="For all other topics.")
@click.option("--default-group", metavar="PERM", help="For all other groups.")
@folder_option
@output_option
def set_permissions(
    key: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    default_topic: str | None,
    default_group: str | None,
    folder: Path,
    output: str,
) -> None:
    """Set permissions: DENY, PUB, SUB or PUB|SUB (mqadmin: updateAclConfig)."""
    from congreve.remoting.messages.admin_bodies import PlainAccessConfig

    files = _open(folder)
    account = _account(files, key)
    files.update(
        PlainAccessConfig(
            access_key=key,
            admin=account.admin,
            topic_perms=_merged(account.topic_perms, topics),
            group_perms=_merged(account.group_perms, groups),
            default_topic_perm=default_topic,
            default_group_perm=default_group,
        )
    )
    done(output, "", access_key=key, changed=True)


def _open(folder: Path) -> AccountFiles:
    from congreve.base.clock import Clock
    from congreve.broker.accounts.files import AccountFiles

    files = AccountFiles(str(folder), Clock())
    files.load()
    return files


def _find(files: AccountFiles, key: str) -> PlainAccessConfig | None:
    accounts = files.without_secrets().plain_access_configs
    return next((each for each in accounts if each.access_key == key), None)


def _account(files: AccountFiles, key: str) -> PlainAccessConfig:
    from congreve.broker.errors import ConfigError

    found = _find(files, key)
    if found is None:
        raise ConfigError(f"there is no account with accessKey={key}")
    return found


def _table(texts: Iterable[str] | None) -> dict[str, str]:
    pairs = (text.partition("=") for text in texts or ())
    return {name.strip(): perm.strip() for name, _, perm in pairs}


def _merged(old: list[str] | None, new: tuple[str, ...]) -> list[str]:
    return [f"{name}={perm}" for name, perm in (_table(old) | _table(new)).items()]
