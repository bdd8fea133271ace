"""Limits of stored messages: the constants of layout.pxd that Python needs."""

TOPIC_MAX = 127
PROPERTIES_MAX = 32767
"""Most bytes of a message's encoded properties."""
BLANK_MIN = 8
"""Bytes that stay free behind the records of a segment."""
