"""The names that gRPC clients may use (RocketMQ 5: GrpcValidator)."""

from typing import Any

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.errors import CallRefusedError
from congreve.broker.metadata.name_rules import group_name_fault, topic_name_fault
from congreve.records.message.topics import is_system_group, is_system_topic

TOPIC_NAME_MAX = 127
GROUP_NAME_MAX = 120
"""Characters, as in RocketMQ's proxy."""


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
