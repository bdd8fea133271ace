"""``congreve store``: inspects and verifies a store's files without a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from congreve.console.report import done, output_option, print_json, show, shown_time
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.store_files.verify import StoreExaminer, StoreInfo

T = TypeVar("T")
PROBLEMS_SHOWN = 20


@click.group(help="Inspect, verify, back up and restore a store's files.")
def store() -> None:
    """All but `restore` only read, so a broker may be using the store."""


@store.command(help="Show what a store holds; exit code 1 if a segment is missing or truncated.")
@click.argument("folder", type=click.Path(path_type=Path))
@output_option
def info(folder: Path, output: str) -> None:
    """Print sizes, offsets and queues, without reading the messages."""
    found = _examiner(folder).info()
    if output == "json":
        print_json(found)
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


def _examiner(root: Path, commit_log: str = "") -> StoreExaminer:
    """Raises StoreError without a store; it names the one that `congreve run` has made there."""
    try:
        return StoreExaminer(str(root), commit_log)
    except StoreError as error:
        inner = root / "store"
        if not (inner / "commitlog").is_dir():
            raise
        raise StoreError(f"{error}: did you mean {inner}?") from error


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
    examiner = _examiner(folder, settings.other_commit_log_dir if settings else "")
    found = examiner.info()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=found.log_end - found.log_begin)
        report = examiner.verify(
            settings.parking if settings else None,
            progress=lambda size: bar.advance(task, size),
        )
    if output == "json":
        print_json(report)
    else:
        click.echo(
            f"{report.records:,} records ({report.bytes:,} bytes), {report.entries:,} queue entries"
        )
        for problem in report.problems[:PROBLEMS_SHOWN]:
            click.echo(f"damaged: {problem}")
        hidden = len(report.problems[PROBLEMS_SHOWN:]) + report.more_problems
        if hidden:
            click.echo(f"and {hidden} more")
        for change in report.changes:
            click.echo(f"changed: {change}")
    if examiner.tell_broker(report):
        click.echo(
            "the broker that runs looks at the damage, and repairs what another has", err=True
        )
    if report.problems:
        sys.exit(1)


config_option = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The broker.conf, for storePathRootDir and storePathCommitLog.",
)
"""Where a store is, as the argument `config_file`."""


@store.command(help="Copy a whole store to a new folder; a broker may be using it.")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), required=False)
@config_option
@output_option
def backup(target: Path, folder: Path | None, config_file: Path | None, output: str) -> None:
    """Copy the store in `folder`, or that of a broker.conf, and check the copy's files."""
    from congreve.console.store_backup import make_backup, size_of

    root, commit_log = store_parts(folder, config_file)
    _examiner(root, str(commit_log))  # there is a store
    made = _with_bar(
        size_of(root) + (0 if commit_log.is_relative_to(root) else size_of(commit_log)),
        lambda progress: make_backup(root, commit_log, target, progress),
    )
    problems = StoreExaminer(str(target)).info().problems
    for problem in problems:
        click.echo(f"damaged: {problem}", err=True)
    text = f"{target} has {made.files:,} files with {made.bytes:,} bytes of {root}"
    done(output, text, backup=str(target), **msgspec.to_builtins(made))
    if problems:
        sys.exit(1)


@store.command(help="Copy a backup to a new store, with its own log and queues and no other's.")
@click.argument("source", metavar="BACKUP", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), required=False)
@config_option
@output_option
def restore(source: Path, folder: Path | None, config_file: Path | None, output: str) -> None:
    """Restore to `folder`, or to the folders of a broker.conf, which must be empty."""
    from congreve.console.store_backup import restore_backup, size_of

    root, commit_log = store_parts(folder, config_file)
    made = _with_bar(
        size_of(source), lambda progress: restore_backup(source, root, commit_log, progress)
    )
    paths = {"storePathRootDir": str(root), "storePathCommitLog": str(commit_log)}
    options = " ".join(f"-o {key}={path}" for key, path in paths.items())
    start = f"congreve broker -c {config_file}" if config_file else f"congreve broker {options}"
    text = f"{root} is the store of {made.root} as it was at {shown_time(made.made_ms)}: {start}"
    done(output, text, **paths, identity=made.identity, made_ms=made.made_ms)


def store_parts(folder: Path | None, config_file: Path | None) -> tuple[Path, Path]:
    """The root and the folder of the log: of a folder, or of a broker.conf."""
    if (folder is None) == (config_file is None):
        raise click.UsageError("name the store's folder, or its broker.conf with -c")
    if folder is not None:
        return folder, folder / "commitlog"
    assert config_file is not None
    settings = _store_settings(config_file)
    return Path(settings.root_dir), Path(settings.commit_log_dir)


def _with_bar(size: int, work: Callable[[Callable[[int], object]], T]) -> T:
    """The result of work, which says how many bytes it has copied; a terminal shows them."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("copying", total=size)
        return work(lambda copied: bar.advance(task, copied))
