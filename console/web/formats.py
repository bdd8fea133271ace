"""Numbers, times and bytes as pages show them."""

import json
import time
import unicodedata
from codecs import getincrementaldecoder
from datetime import UTC, datetime
from urllib.parse import quote

from congreve.byte_size import readable_size

HEX_ROW = 16
HEX_BYTES_MAX = 4_096
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def count(value: float) -> str:
    """A whole number with thin groups: 1,234,567."""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Messages a second: one decimal below ten."""
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes with a unit: 1.2 MiB."""
    return readable_size(value)


def duration(seconds: float) -> str:
    """A time span with its largest unit, or its two largest: 3 min, 1 h 20 min."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    for index, (step, unit) in enumerate(_STEPS):
        if seconds >= step:
            whole, rest = divmod(seconds, step)
            text = f"{whole:.0f} {unit}"
            if index + 1 < len(_STEPS):
                below, small = _STEPS[index + 1]
                if whole < 10 and rest >= below:
                    text += f" {rest // below:.0f} {small}"
            return text
    raise AssertionError


def age(time_ms: int, now_ms: int | None = None) -> str:
    """The time since `time_ms`; a dash if it is unknown."""
    if time_ms <= 0:
        return "–"
    now = time.time() * 1000 if now_ms is None else now_ms
    return duration(max(now - time_ms, 0) / 1000)


def moment(time_ms: int) -> str:
    """A time in UTC, to the millisecond; a dash if it is unknown or beyond the calendar."""
    try:
        if time_ms <= 0:
            return "–"
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "–"
    return f"{at:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03} UTC"


def permission(perm: int) -> str:
    """What a topic's permission allows."""
    allowed = [name for bit, name in ((4, "read"), (2, "write")) if perm & bit]
    return ", ".join(allowed) or "nothing"


def path_part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def plain(text: str) -> str:
    """Text whose control and direction characters are shown as codes, not obeyed."""
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cf") else _code(sign)
        for sign in text
    )


def _code(sign: str) -> str:
    return f"<U+{ord(sign):04X}>"


def body_text(body: bytes) -> str | None:
    """A body as text, None if it is not UTF-8."""
    try:
        return plain(body.decode())
    except UnicodeDecodeError:
        return None


def body_json(body: bytes) -> str | None:
    """A body as indented JSON, None if it is none."""
    if body[:1] not in b"{[":
        return None
    try:
        return plain(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def body_hex(body: bytes) -> str:
    """The first HEX_BYTES_MAX bytes as lines of offset, hex and ASCII."""
    lines = []
    for start in range(0, min(len(body), HEX_BYTES_MAX), HEX_ROW):
        row = body[start : start + HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * HEX_ROW}} {shown}")
    return "\n".join(lines)


def preview(body: bytes, length: int = 120) -> str:
    """The beginning of a body on one line."""
    head = body[: 4 * length]
    try:
        # Not final where the body goes on: its last character may be cut.
        text = getincrementaldecoder("utf-8")().decode(head, len(head) == len(body))
    except UnicodeDecodeError:
        return f"{len(body):,} bytes, not text: {body[:24].hex(' ')}"
    line = " ".join(plain(text).split())
    return line if len(line) <= length else f"{line[:length]}…"
