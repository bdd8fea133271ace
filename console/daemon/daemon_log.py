"""The log of the daemons on standard error: one line per event, as text or as JSON."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from congreve.console.daemon.log_limit import LogLimit

F = TypeVar("F", bound=Callable[..., Any])

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
CALLS_MAX = 12
"""How many calls of an error's traceback a line names, the innermost first."""


def log_options(command: F) -> F:
    """Add `--log-format` and `--log-level`, which start_log() takes."""
    with_level = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        envvar="CONGREVE_LOG_LEVEL",
        default="WARNING",
        show_default=True,
        help="The lowest level to log; logLevels in broker.conf changes it at run time.",
    )(command)
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        envvar="CONGREVE_LOG_FORMAT",
        default="text",
        show_default=True,
        help="Write each log line as text or as a JSON object.",
    )(with_level)


def start_log(log_format: str, log_level: str) -> None:
    """Write log lines to standard error from now on; repeated ones are limited."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    handler.addFilter(LogLimit())
    logging.basicConfig(level=log_level.upper(), handlers=[handler])


class TextLines(logging.Formatter):
    """One line of text for each event: time, level, logger, message, the error with its calls."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without line breaks."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        line = self.formatMessage(record)
        if record.exc_info:
            line += f": {error_line(record)}"
        return line.replace("\r", "\\r").replace("\n", "\\n")


class JsonLines(logging.Formatter):
    """One JSON object for each event: time (UTC), level, logger, thread, message, error."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = error_line(record)
        return json.dumps(line, ensure_ascii=False)


def error_line(record: logging.LogRecord) -> str:
    """The error of a record and where it was raised, the innermost call first."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    calls = reversed(traceback.extract_tb(error.__traceback__)[-CALLS_MAX:])
    where = " < ".join(f"{call.name} ({call.filename}:{call.lineno})" for call in calls)
    return f"{type(error).__name__}: {error} at {where}"
