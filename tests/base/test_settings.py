"""Values of settings, and their changes over the network."""

import pytest

from congreve.base.settings import check_changeable, parse
from congreve.broker.config import BrokerConfig, all_settings


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("brokerPermision", "did you mean brokerPermission?"),
        ("nosuch", "check how the key is spelled"),
        ("x" * 10_000, "check how the key is spelled"),
    ],
)
def test_an_unknown_key_is_answered_with_the_one_that_was_meant(key: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint) as refused:
        check_changeable(all_settings(), {key: "1"}, "broker.conf")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("key", "text", "cure"),
    [
        ("brokerId", "x", "use a whole number"),
        ("brokerId", "0x10", "use a whole number"),
        ("aclEnable", "yes", "use true or false"),
    ],
)
def test_a_value_of_another_type_is_answered_with_the_cure(key: str, text: str, cure: str) -> None:
    with pytest.raises(ValueError, match=f"{key}='{text}': {cure}$"):
        parse(BrokerConfig, {key: text})
