"""The compiled check of a send's properties, compared with the codec of the Python handlers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.requests.properties import stored
from congreve.records.message.property_codec import decode_properties
from congreve.records.record import string_hash

pieces = st.sampled_from(
    [
        "TAGS\x01a",
        "TAGS\x01\u00e4\U0001f600",
        "KEYS\x01k 1",
        "WAIT\x01true",
        "\x01x",
        "k\x01",
        "ab",
        "",
        "k\x01a\x01b",
    ]
)


@given(st.lists(pieces))
def test_compiled_properties_equal_those_of_the_codec_without_wait(parts: list[str]) -> None:
    text = "\x02".join(parts).encode()
    expected = {k: v for k, v in decode_properties(text).items() if k != "WAIT"}
    found = stored(text)
    assert found is not None
    assert decode_properties(found[0]) == expected
    assert found[1] == (string_hash(expected["TAGS"]) if "TAGS" in expected else 0)


@pytest.mark.parametrize(
    "special", ["DELAY\x013", "TRAN_MSG\x01true", "CLUSTER\x01c", "TIMER_DELAY_SEC\x019"]
)
def test_python_handles_messages_with_special_properties(special: str) -> None:
    assert stored(f"KEYS\x01k\x02{special}\x02TAGS\x01t".encode()) is None


@pytest.mark.parametrize("more", ["", "\x02TAGS\x01t"])
def test_a_plain_priority_is_stored(more: str) -> None:
    text = f"_SYS_MSG_PRIORITY_\x013{more}".encode()
    assert stored(text) == stored(text, batch=True) == (text, string_hash("t") if more else 0)
    assert stored(text + b"\x02__SHARDINGKEY\x01k") is None
    assert stored(text.replace(b"3", b"-3")) is None
    assert stored(text + b"\x02" + text) is None


def test_a_send_without_wait_does_not_wait_for_the_group() -> None:
    assert stored(b"WAIT\x01false", sync_flush=True) is None
    assert stored(b"WAIT\x01false") == (b"", 0)


def test_a_batch_keeps_wait_and_python_handles_too_long_properties() -> None:
    assert stored(b"WAIT\x01true", batch=True) == (b"WAIT\x01true", 0)
    assert stored(b"k\x01" + b"v" * 32_766) is None
