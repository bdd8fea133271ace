"""Subscription expressions (RocketMQ: FilterAPI, ExpressionType)."""

import sys
from typing import NamedTuple

from congreve.records.filter.kinds import ALL, split_tags
from congreve.records.filter.record_filter import RecordFilter
from congreve.records.record import string_hash
from congreve.remoting.messages.admin_bodies import SubscriptionData

TAGS_MAX = 32 * 1024
"""Characters of an expression of tags."""


def tags_of(expression: str | None) -> frozenset[str] | None:
    """The tags of `a || b`, None for all.

    Raises ValueError if there is no tag, or if the expression is too long.
    """
    if not expression or expression.strip() == ALL:
        return None
    if len(expression) > TAGS_MAX:
        raise ValueError(f"a subscription has {len(expression)} characters: use at most {TAGS_MAX}")
    tags = frozenset(split_tags(expression))
    if not tags:
        raise ValueError(f"subscription {expression!r} has no tag: write a || b, or *")
    return tags


def tag_codes_of(expression: str | None) -> frozenset[int] | None:
    """The tags' codes in consume queues, None for all. Raises ValueError as tags_of() does."""
    tags = tags_of(expression)
    return None if tags is None else frozenset(string_hash(tag) for tag in tags)


def memory_of(subscription: SubscriptionData) -> int:
    """Approximate size of a subscription in bytes."""
    tags = subscription.tags_set
    texts = (subscription.topic, subscription.sub_string, subscription.expression_type, *tags)
    return 512 + sum(map(sys.getsizeof, texts)) + 48 * (len(tags) + len(subscription.code_set))


class MessageFilter(NamedTuple):
    """A filter of messages by tag code, by properties, or by both; None lets all pass.

    (RocketMQ: MessageFilter.)
    """

    tag_codes: frozenset[int] | None = None
    records: RecordFilter | None = None

    @property
    def lets_all_pass(self) -> bool:
        """Whether it matches every message."""
        return self.tag_codes is None and self.records is None
