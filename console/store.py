"""``congreve store``: inspects and verifies a store's files without a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from congreve.console.report import output_option, show
from congreve.engine.config import StoreConfig
from congreve.engine.store_files.verify import StoreExaminer, StoreInfo

PROBLEMS_SHOWN = 20


@click.group(help="Inspect and verify a store's files, offline.")
def store() -> None:
    """Both commands only read, so a broker may be using the store."""


@store.command(help="Show what a store holds; exit code 1 if a segment is missing or truncated.")
@click.argument("folder", type=click.Path(path_type=Path))
@output_option
def info(folder: Path, output: str) -> None:
    """Print sizes, offsets and queues, without reading the messages."""
    found = StoreExaminer(str(folder)).info()
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
    else:
        click.echo(_summary(found))
        if found.sizes.settings:
            click.echo("A RocketMQ broker, or a slave, needs these lines in its broker.conf:")
            for key, size in found.sizes.settings.items():
                click.echo(f"{key}={size}")
        show(
            [
                {"topic": q.topic, "queue": q.queue_id, "min": q.min, "max": q.max}
                for q in found.queues
            ],
            output,
        )
        for problem in found.problems:
            click.echo(f"damaged: {problem}")
    if found.problems:
        sys.exit(1)


def _store_settings(config_file: Path) -> StoreConfig:
    from congreve.broker.broker_conf import load_config

    return load_config(config_file).config.store


def _summary(found: StoreInfo) -> str:
    stop = "stopped cleanly" if found.clean else "not stopped cleanly, or a broker is running"
    return (
        f"{found.root}: {found.segments} segments of {found.segment_size:,} bytes,"
        f" log {found.log_begin:,} to {found.log_end:,}, {len(found.queues)} queues,"
        f" {found.index_files} index files; {stop}"
    )


@store.command(help="Check every record and queue entry; exit code 1 if one is damaged.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="The broker.conf of the broker, for messageDelayLevel and storePathCommitLog. A store that"
    " Congreve wrote records the delay levels itself.",
)
@output_option
def verify(folder: Path, config_file: Path | None, output: str) -> None:
    """Check the CRC of every record, and compare every queue entry with its record."""
    from rich.console import Console
    from rich.progress import Progress

    settings = None if config_file is None else _store_settings(config_file)
    examiner = StoreExaminer(str(folder), settings.other_commit_log_dir if settings else "")
    found = examiner.info()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=found.log_end - found.log_begin)
        report = examiner.verify(
            settings.parking if settings else None,
            progress=lambda size: bar.advance(task, size),
        )
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode(report).decode())
    else:
        click.echo(
            f"{report.records:,} records ({report.bytes:,} bytes), {report.entries:,} queue entries"
        )
        for problem in report.problems[:PROBLEMS_SHOWN]:
            click.echo(f"damaged: {problem}")
        hidden = len(report.problems[PROBLEMS_SHOWN:]) + report.more_problems
        if hidden:
            click.echo(f"and {hidden} more")
    if report.problems:
        sys.exit(1)
