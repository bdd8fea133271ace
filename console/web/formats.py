"""Numbers, times and bytes as pages show them."""

import re
import time
from codecs import getincrementaldecoder
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from congreve.base.byte_size import readable_size

JSON_BYTES_MAX = 256 << 10
JSON_DEPTH_MAX = 32
HEX_ROW = 16
HEX_BYTES_MAX = 4_096
#: Control and format characters (Unicode: Cc, Cf), without line breaks and tabs.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
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


def minute(time_ms: int) -> str:
    """A time in UTC, to the minute; a dash as for moment()."""
    text = moment(time_ms)
    return f"{text[:16]} UTC" if text.endswith("UTC") else text


def permission(perm: int) -> str:
    """What a topic's permission allows."""
    allowed = [name for bit, name in ((4, "read"), (2, "write")) if perm & bit]
    return ", ".join(allowed) or "nothing"


def path_part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def plain(text: str) -> str:
    """Text whose control and direction characters are shown as codes."""
    return _INVISIBLE.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


def body_text(body: bytes) -> str | None:
    """A body as text, None if it is not UTF-8."""
    try:
        return plain(body.decode())
    except UnicodeDecodeError:
        return None


def body_json(body: bytes) -> str | None:
    """A body as indented JSON, None if it is none, or too large or too deep to be indented."""
    if body[:1] not in (b"{", b"[") or len(body) > JSON_BYTES_MAX:
        return None
    try:
        if _is_deep(msgspec.json.decode(body)):
            return None
        return plain(msgspec.json.format(body, indent=2).decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_deep(tree: Any) -> bool:
    """Whether a document is deeper than JSON_DEPTH_MAX: indentation would make it much larger."""
    layer = [tree]
    for _ in range(JSON_DEPTH_MAX):
        layer = [
            item
            for node in layer
            if isinstance(node, list | dict)
            for item in (node if isinstance(node, list) else node.values())
        ]
        if not layer:
            return False
    return True


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
        # Not final if the body continues: its last character may be cut.
        text = getincrementaldecoder("utf-8")().decode(head, len(head) == len(body))
    except UnicodeDecodeError:
        return f"{len(body):,} bytes, not text: {body[:24].hex(' ')}"
    line = " ".join(plain(text).split())
    return line if len(line) <= length else f"{line[:length]}…"
