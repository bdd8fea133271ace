"""Log records with fields: a text for readers, `event` and `fields` for programs."""

import logging


class Log:
    """The logger of a module: ``log.warning("pull failed", queue=queue, error=error)``.

    The standard library's logger of that name gets ``pull failed: queue=... error=...``; the record
    has `event`, the text before the colon, and `fields`, a dict of the values themselves.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """Log detail for finding faults."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an occasional normal event."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a fault that the client handles."""
        self._write(logging.WARNING, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an exception of the user's code with its traceback."""
        self._write(logging.ERROR, event, fields, with_traceback=True)

    def _write(
        self, level: int, event: str, fields: dict[str, object], *, with_traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            values = " ".join(f"{name}={value}" for name, value in fields.items())
            self._logger.log(
                level,
                "%s: %s",
                event,
                values,
                exc_info=with_traceback,
                extra={"event": event, "fields": fields},
                stacklevel=3,
            )
