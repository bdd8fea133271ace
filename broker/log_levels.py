"""Levels of log lines that change while the broker runs."""

import logging

from congreve.broker.errors import ConfigError

ROOT = "congreve"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def parse_log_levels(text: str) -> dict[str, str]:
    """Levels by logger: ``INFO``, or ``congreve.broker=DEBUG;congreve.engine=INFO``.

    Raises ConfigError for an unknown level, and for a logger of another package.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, level = part.rpartition("=")
        name, level = (name.strip() if equals else ROOT), level.strip().upper()
        if level not in LEVELS:
            raise ConfigError(
                f"logLevels={text!r}: {level} is not a level; use {', '.join(LEVELS)}"
            )
        if name != ROOT and not name.startswith(ROOT + "."):
            raise ConfigError(f"logLevels={text!r}: {name} is not a logger below {ROOT}")
        found[name] = level
    return found


class LogLevels:
    """Sets the levels of Congreve's loggers, and restores them (RocketMQ: logback's scan)."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def apply(self, text: str) -> None:
        """Set these levels (see parse_log_levels()), and restore those that are not named."""
        wanted = parse_log_levels(text)
        for name in self._before.keys() - wanted.keys():
            logging.getLogger(name).setLevel(self._before.pop(name))
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            self._before.setdefault(name, logger.level)
            logger.setLevel(level)

    def restore(self) -> None:
        """Restore all levels."""
        self.apply("")
