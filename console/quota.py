"""``congreve quota``: the quotas in a broker's file."""

from __future__ import annotations

from pathlib import Path

import click

from congreve.broker.quota_limits import Kind
from congreve.console.accounts import folder_option
from congreve.console.report import done, output_option, show

KIND = click.Choice([str(kind) for kind in Kind])


@click.group(help="List, set and delete quotas: what names may use in a second.")
def quota() -> None:
    """A running broker reads changed files again within a second."""


@quota.command("list", help="Print all quotas of the file.")
@folder_option
@output_option
def list_quotas(folder: Path, output: str) -> None:
    """Print the limits of each name."""
    import msgspec

    from congreve.broker.quotas.quota_file import QuotaFile

    rows = [
        {"kind": str(kind), "name": name, **msgspec.to_builtins(limits)}
        for kind, name, limits in QuotaFile(str(folder)).load()
    ]
    show(rows, output)


@quota.command("set", help="Set the quota of a name; '*' stands for all names without their own.")
@click.argument("kind", type=KIND)
@click.argument("name")
@click.argument("limits", metavar="LIMIT=NUMBER...", nargs=-1, required=True)
@folder_option
@output_option
def set_quota(kind: str, name: str, limits: tuple[str, ...], folder: Path, output: str) -> None:
    """Set limits: sendMessages, sendBytes, pullMessages, pullBytes, coldReads,
    heartbeats, heldPulls.
    """
    from congreve.broker.quota_limits import Limits
    from congreve.broker.quotas.quota_file import Quota, QuotaFile

    wanted = Limits.parse(",".join(limits))
    QuotaFile(str(folder)).set(Quota(Kind(kind), name, wanted))
    done(output, "", kind=kind, name=name, changed=True)


@quota.command(help="Delete the quota of a name.")
@click.argument("kind", type=KIND)
@click.argument("name")
@folder_option
@output_option
def delete(kind: str, name: str, folder: Path, output: str) -> None:
    """Delete a quota; the name then has that of '*', or of broker.conf."""
    from congreve.broker.quotas.quota_file import QuotaFile

    QuotaFile(str(folder)).delete(Kind(kind), name)
    done(output, "", kind=kind, name=name, deleted=True)
