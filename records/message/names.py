"""The valid names of topics and groups (RocketMQ: TopicValidator, Validators)."""

import re

GROUP_NAME_MAX = 255
"""Characters of the longest name of a group; `records.layout.TOPIC_MAX` is that of a topic."""

ALLOWED_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
"""The characters that a name of a topic or group may have."""
