"""Subscriptions of consumers (RocketMQ: FilterAPI, MessageSelector)."""

import msgspec

from congreve.client.checks import check_topic
from congreve.client.errors import InvalidSubscriptionError
from congreve.records.filter.kinds import ALL, SQL92, TAG, split_tags
from congreve.records.record import string_hash
from congreve.remoting.messages.admin_bodies import SubscriptionData


class Sql(msgspec.Struct, frozen=True):
    """A filter on properties, evaluated by the broker: ``Sql("price > 10 AND region = 'eu'")``
    (RocketMQ: MessageSelector.bySql)."""

    expression: str


class Subscription(msgspec.Struct, frozen=True):
    """A topic with a filter (RocketMQ: SubscriptionData); `tags` None means all messages, or
    those of an SQL filter."""

    topic: str
    expression: str
    kind: str
    tags: frozenset[str] | None = None

    def data(self, version: int) -> SubscriptionData:
        """The subscription as the heartbeat carries it; `version` is a time in milliseconds."""
        tags = split_tags(self.expression) if self.tags is not None else []
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            tags_set=tags,
            code_set=[string_hash(tag) for tag in tags],
            sub_version=version,
            expression_type=self.kind,
        )


def subscribe(topic: str, wanted: str | Sql = ALL) -> Subscription:
    """A subscription from ``*``, tags separated by ``||``, or Sql.

    Raises InvalidNameError when the topic's name is invalid, InvalidSubscriptionError when the
    filter is.
    """
    check_topic(topic)
    text = wanted.expression if isinstance(wanted, Sql) else wanted
    if not isinstance(text, str):
        raise InvalidSubscriptionError(f"subscription {text!r} of topic {topic}: text is expected")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSubscriptionError(
            f"subscription {text!r} of topic {topic} is not valid Unicode: {error}"
        ) from None
    if isinstance(wanted, Sql):
        if not wanted.expression.strip():
            raise InvalidSubscriptionError(f"the SQL filter of topic {topic} is empty")
        return Subscription(topic, wanted.expression, SQL92)
    if wanted.strip() in ("", ALL):
        return Subscription(topic, ALL, TAG)
    tags = split_tags(wanted)
    if not tags:
        raise InvalidSubscriptionError(
            f"subscription {wanted!r} of topic {topic} has no tag: use `*` or `A || B`"
        )
    return Subscription(topic, wanted, TAG, frozenset(tags))
