"""One line per event, as text and as JSON."""

import json
import logging
import sys

import pytest

from congreve.console.daemon.daemon_log import JsonLines, TextLines


def record(text: str = "a %s", *, error: Exception | None = None) -> logging.LogRecord:
    found = None
    if error is not None:
        try:
            raise error
        except type(error):
            found = sys.exc_info()
    return logging.LogRecord("congreve.x", logging.ERROR, "f.py", 1, text, ("b",), found)


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_a_log_event_is_one_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("a\n%s\r\n", error=ValueError("two\nlines")))
    assert len(line.splitlines()) == 1
    assert "ValueError" in line and "record (" in line
    assert formatter.format(record()).count("a b") == 1


def test_json_log_lines_have_all_parts() -> None:
    line = json.loads(JsonLines().format(record(error=OSError("disk"))))
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "congreve.x", "a b")
    assert line["thread"] == "MainThread"
    assert line["error"].startswith("OSError: disk at record (")
    assert "error" not in json.loads(JsonLines().format(record()))
