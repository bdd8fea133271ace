"""White addresses, with the patterns of RocketMQ's documentation."""

import contextlib
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.accounts.addresses import AddressPattern
from congreve.broker.errors import ConfigError

MATCHES = [
    ("*", "10.0.0.1"),
    ("*", "::1"),
    ("*.*.*.*", "10.0.0.1"),
    ("*:*:*:*:*:*:*:*", "fe80::1"),
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("127.0.0.1,127.0.0.2", "127.0.0.2"),
    ("127.0.0.{1,2, 3}", "127.0.0.3"),
    ("192.168.0.*", "192.168.0.255"),
    ("192.168.*.*", "192.168.7.9"),
    ("192.168.*", "192.168.7.9"),
    ("192.100-150.*.*", "192.130.0.2"),
    ("127.0.0.1-200", "127.0.0.200"),
    ("127.0.1-20.*", "127.0.20.5"),
    ("::1", "0:0:0:0:0:0:0:1"),
    ("1050::0005:0600:300c:{1,2,3}", "1050::5:600:300c:2"),
    ("1050::0005:0600:300c:3261:1-200", "1050::5:600:300c:3261:200"),
    ("1050:0005:0600:300c:3261:*", "1050:5:600:300c:3261:1:2:3"),
    ("1050::0005:0600:300c:1-20:*", "1050::5:600:300c:20:ffff"),
    ("fe80::1", "fe80::1%eth0"),
    ("10.1.4.0/22", "10.1.7.255"),
    ("10.1.2.3/32,0.0.0.0/0", "127.0.0.1"),
    ("fe80::/10", "febf::1"),
]
DOES_NOT_MATCH = [
    ("", "127.0.0.1"),
    ("127.0.0.1", "127.0.0.11"),
    ("127.0.0.1", "unknown"),
    ("192.168.0.*", "192.168.1.1"),
    ("192.168.0.*", "::c0a8:1"),
    ("127.0.0.1-200", "127.0.0.201"),
    ("127.0.1-20.5", "127.0.3.6"),
    ("127.0.0.{1,2}", "127.0.0.12"),
    ("1050::0005:0600:300c:{1,2,3}", "1050::5:600:300c:4"),
    ("1050:0005:0600:300c:3261:*", "1050:5:600:300c:3262:1:2:3"),
    ("10.1.4.0/22", "10.1.8.0"),
    ("10.1.2.3/32", "10.1.2.2"),
    ("fe80::/10", "fec0::1"),
    ("::/0", "127.0.0.1"),
]


@pytest.mark.parametrize(("pattern", "address"), MATCHES)
def test_a_pattern_matches_the_address(pattern: str, address: str) -> None:
    assert AddressPattern.parse(pattern).matches(address)


@pytest.mark.parametrize(("pattern", "address"), DOES_NOT_MATCH)
def test_a_pattern_does_not_match_another_address(pattern: str, address: str) -> None:
    assert not AddressPattern.parse(pattern).matches(address)


@pytest.mark.parametrize(
    "pattern",
    [
        "256.0.0.1",
        "::1ggg",
        "1.2.3",
        "1.2.3.4.5",
        "127.0.0.1,2,3}",
        "{1.2.3.4}",
        "192.168.{1}",
        "10.0.0.9-3",
        "10.0.0.0/33",
        "10.0.0.*/24",
        "10.0.0.-3",
        "10.0.0.1-999",
        "a.b.c.d",
        "host",
        "1:2:3",
        "10.0.0.*x",
        "-",
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="not a pattern of addresses"):
        AddressPattern.parse(pattern)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_an_address_matches_itself_and_no_other(mine: int, other: int) -> None:
    for kind, scale in ((IPv4Address, 1), (IPv6Address, 2**90)):
        pattern = AddressPattern.parse(str(kind(mine * scale)))
        assert pattern.matches(str(kind(mine * scale)))
        assert pattern.matches(str(kind(other * scale))) == (mine == other)


@given(st.text(max_size=40))
def test_any_text_is_accepted_as_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        AddressPattern.parse(text).matches("10.0.0.1")
