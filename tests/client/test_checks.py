"""What no broker takes is refused before anything is sent."""

import pytest

from congreve.client.checks import RESERVED_PROPERTIES, check_batch, check_group, check_message
from congreve.client.errors import InvalidMessageError, InvalidNameError
from congreve.client.message import Message

MAX = 1024


def message(topic: str = "T", body: object = b"x", **more: object) -> Message:
    return Message(topic=topic, body=body, **more)


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "a b"),
        ("ü", "ü"),
        ("T\n", "T"),
        ("x" * 128, "128"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_bad_topics_are_named(topic: str, named: str) -> None:
    with pytest.raises(InvalidNameError, match=named):
        check_message(message(topic), MAX)


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b_c-9", "x" * 127])
def test_allowed_topics_pass(topic: str) -> None:
    check_message(message(topic), MAX)


@pytest.mark.parametrize(
    ("body", "named"), [(b"", "empty"), (b"x" * 1025, "1025"), ("text", "str"), (None, "NoneType")]
)
def test_bad_bodies_are_named(body: object, named: str) -> None:
    with pytest.raises(InvalidMessageError, match=named):
        check_message(message(body=body), MAX)


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_QID", "TRAN_MSG", ""])
def test_reserved_and_blank_properties_are_refused(name: str) -> None:
    with pytest.raises(InvalidMessageError):
        check_message(message(properties={name: "v"}), MAX)


def test_blank_property_values_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="blank"):
        check_message(message(properties={"n": " "}), MAX)


def test_separator_is_no_property_name() -> None:
    assert " " not in RESERVED_PROPERTIES
    assert "KEYS" in RESERVED_PROPERTIES


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "DEFAULT"])
def test_bad_groups_are_refused(group: str) -> None:
    with pytest.raises(InvalidNameError):
        check_group(group, "DEFAULT")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message("T"), message("U")],
        [message(), message(wait=False)],
        [message(delay_level=1)],
        [message("%RETRY%g")],
        [message(), message(body=b"")],
        [message(delay_level=-1)],
    ],
)
def test_bad_batches_are_refused(messages: list[Message]) -> None:
    with pytest.raises(InvalidMessageError):
        check_batch(messages, MAX)
