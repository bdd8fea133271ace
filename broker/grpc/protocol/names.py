"""The names that gRPC clients may use (RocketMQ 5: GrpcValidator)."""

import re
from typing import Any

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.metadata.name_rules import group_name_fault, topic_name_fault
from congreve.records.message.topics import is_system_group, is_system_topic

LITE_TOPIC_MAX = 64
"""Bytes of a lite topic's name."""
TOPIC_NAME_MAX = 127
GROUP_NAME_MAX = 120
"""Characters, as in RocketMQ's proxy."""

_LITE_TOPIC = re.compile(r"[a-zA-Z0-9_-]+")


def checked_topic(resource: Any) -> str:
    """The topic of a Resource. Raises CallRefusedError."""
    name = str(resource.name)
    fault = topic_name_fault(name)
    if fault is None and len(name) > TOPIC_NAME_MAX:
        fault = f"the topic {name} is longer than {TOPIC_NAME_MAX} characters"
    if fault is None and is_system_topic(name):
        fault = "cannot access system topic"
    if fault is not None:
        raise CallRefusedError(Code.ILLEGAL_TOPIC, fault)
    return name


def checked_lite_topic(name: str) -> str:
    """The name of a lite topic. Raises CallRefusedError."""
    if not name.strip():
        raise CallRefusedError(Code.ILLEGAL_LITE_TOPIC, "lite topic cannot be blank")
    if len(name.encode()) > LITE_TOPIC_MAX:
        why = f"lite topic exceed the max size {LITE_TOPIC_MAX}"
        raise CallRefusedError(Code.ILLEGAL_LITE_TOPIC, why)
    if not _LITE_TOPIC.fullmatch(name):
        why = "lite topic can only contain alphanumeric characters, hyphens(-), and underscores(_)"
        raise CallRefusedError(Code.ILLEGAL_LITE_TOPIC, why)
    return name


def checked_group(resource: Any) -> str:
    """The group of a Resource. Raises CallRefusedError."""
    name = str(resource.name)
    fault = group_name_fault(name)
    if fault is None and len(name) > GROUP_NAME_MAX:
        fault = f"the group {name} is longer than {GROUP_NAME_MAX} characters"
    if fault is None and is_system_group(name):
        fault = "cannot use system consumer group"
    if fault is not None:
        raise CallRefusedError(Code.ILLEGAL_CONSUMER_GROUP, fault)
    return name
