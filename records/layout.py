"""Limits of stored messages: what layout.pxd says, as far as Python needs it."""

TOPIC_MAX = 127
PROPERTIES_MAX = 32767
"""Bytes of a message's encoded properties."""
