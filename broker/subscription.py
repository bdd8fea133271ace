"""Subscription expressions (RocketMQ: FilterAPI, ExpressionType)."""

from typing import NamedTuple

from congreve.records.record import string_hash
from congreve.records.recordfilter import RecordFilter

ALL = "*"
TAG_TYPE = "TAG"


def is_tag_type(expression_type: str | None) -> bool:
    """True for TAG, which an absent type means."""
    return not expression_type or expression_type == TAG_TYPE


def tags_of(expression: str | None) -> frozenset[str] | None:
    """The tags of `a || b`; None for all. ValueError for an expression that names no tag."""
    if not expression or expression.strip() == ALL:
        return None
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise ValueError(f"subscription {expression!r} names no tag; write a || b, or *")
    return tags


def tag_codes_of(expression: str | None) -> frozenset[int] | None:
    """What the tags' consume-queue entries carry; None for all. ValueError as tags_of()."""
    tags = tags_of(expression)
    return None if tags is None else frozenset(string_hash(tag) for tag in tags)


class MessageFilter(NamedTuple):
    """What messages must satisfy: one of these tag hashes, these properties; None lets all pass."""

    tag_codes: frozenset[int] | None = None
    records: RecordFilter | None = None

    @property
    def lets_all_pass(self) -> bool:
        return self.tag_codes is None and self.records is None
