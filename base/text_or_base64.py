"""Bytes in JSON."""

import base64


def text_or_base64(name: str, data: bytes) -> dict[str, str | None]:
    """A field of this name with the bytes as text; of other bytes it is None, and the field
    `name`_base64 has them."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(data).decode()}
