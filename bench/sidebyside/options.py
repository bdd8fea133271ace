"""Options of the commands of this package."""

from __future__ import annotations

from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]

DATA = click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=ROOT / "build" / "bench" / "data",
    help="Where the stores go; it is emptied.",
)
OWN = click.option(
    "--set", "own", metavar="KEY=VALUE", multiple=True, help="A setting of our broker."
)
