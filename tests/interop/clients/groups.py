"""Names of groups."""

from __future__ import annotations

import uuid


def group() -> str:
    return f"python-{uuid.uuid4().hex[:8]}"
