"""The process beside a broker that copies topics into tables: `lakeTopics`."""

from __future__ import annotations

import importlib.util
import sys

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.processes.side_process import SideProcess

STOP_S = 60.0
"""How long a stopped process may need for the commit that it has begun."""
MEMBER_STOP_S = 1.0
"""The same in an elected group: the next master begins after it, and repeats the commit."""
CHECKPOINTS = 3
"""How many checkpoints a broker writes in the time of `lakeLagMillis`."""
NICENESS = 10
"""Below the broker's threads: an export takes the time that sends leave over."""


def follow_command(config: BrokerConfig) -> list[str]:
    """The command line of `congreve lake follow` for a broker's settings."""
    store = config.store
    # An export begins with each checkpoint, of which there is one in a third of the lag.
    options = {
        "--store": store.root_dir,
        "--commit-log": store.other_commit_log_dir,
        "--warehouse": config.lake.warehouse,
        "--catalog": config.lake.catalog,
        "--broker-name": config.broker_name,
        "--partition": config.lake.partition,
        "--commit-bytes": str(config.lake.commit_bytes),
        "--lag": f"{config.lake.lag_millis / CHECKPOINTS / 1000:.3f}",
    }
    repeated = {
        "--topic": config.lake.topics,
        "--property": config.lake.properties,
        "--body": config.lake.bodies,
    }
    command = [sys.executable, "-m", "congreve", "lake", "follow", "--stop-with-stdin"]
    command.append("--note-progress")  # for metrics, and for lakeRetention
    if config.election.ha_mode != "classic":
        # One member writes the table: what its group has confirmed.
        command.append("--note-only" if config.is_slave else "--confirmed-only")
    if config.lake.drop_bodies:
        command.append("--drop-bodies")
    command += [part for name, value in options.items() if value for part in (name, value)]
    return command + [
        part for name, all_ in repeated.items() for v in parts_of(all_) for part in (name, v)
    ]


def parts_of(text: str) -> list[str]:
    """The parts of a setting, separated by `;`."""
    return [part.strip() for part in text.split(";") if part.strip()]


def lake_process(config: BrokerConfig) -> SideProcess | None:
    """The process of a broker, None without lakeTopics.

    The store of `config` will write checkpoints as often as the lag needs, because only what a
    checkpoint covers is exported. Raises ConfigError when the extra `lake` is not installed.
    """
    if not config.lake.topics:
        return None
    topics = parts_of(config.lake.topics)
    for part in parts_of(config.lake.bodies):
        topic, _, schema = part.partition("=")
        if topic not in topics or ":" not in schema:
            raise ConfigError(
                f"lakeBodies has {part!r}: write TOPIC=FORMAT:FILE with a topic of lakeTopics"
            )
    if importlib.util.find_spec("pyiceberg") is None:
        raise ConfigError("lakeTopics needs pyiceberg: pip install 'congreve[lake]'")
    config.store.flush_consume_queue_thorough_interval = min(
        config.store.flush_consume_queue_thorough_interval, config.lake.lag_millis // CHECKPOINTS
    )
    stop_s = STOP_S if config.election.ha_mode == "classic" else MEMBER_STOP_S
    return SideProcess(
        "the export to tables", follow_command(config), niceness=NICENESS, stop_s=stop_s
    )
