"""Accounts and what they may do (RocketMQ: PlainAccessResource, Permission)."""

from collections.abc import Iterable
from enum import Enum, IntFlag
from typing import NamedTuple

import msgspec

from congreve.broker.accounts.addresses import AddressPattern
from congreve.records.message.topics import RETRY_PREFIX, TRACE_TOPIC

KEY_MIN = 7
"""Characters that an access key and a secret key must have."""


class Perm(IntFlag):
    """What an account may do with a topic or group (RocketMQ: Permission)."""

    DENY = 1
    PUB = 4
    SUB = 8


PERM_TEXTS = {
    "DENY": Perm.DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}
"""How files and administrators write permissions."""


class Kind(Enum):
    """Kinds of resources."""

    TOPIC = "topic"
    GROUP = "group"


class Need(NamedTuple):
    """A request needs one of the bits of `perm` for a topic or a group."""

    kind: Kind
    name: str
    perm: Perm

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


def topic_need(topic: str, perm: Perm) -> Need:
    """What the use of a topic needs; an account that may consume with a group may use its retry
    topic."""
    if topic.startswith(RETRY_PREFIX):
        return Need(Kind.GROUP, topic.removeprefix(RETRY_PREFIX), Perm.SUB)
    return Need(Kind.TOPIC, topic, perm)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One account; names that are not in `topics` and `groups` have the default permissions.

    (RocketMQ: PlainAccessResource.)
    """

    access_key: str
    secret_key: str
    white_addresses: AddressPattern = AddressPattern()
    admin: bool = False
    default_topic_perm: Perm = Perm.DENY
    default_group_perm: Perm = Perm.DENY
    topics: dict[str, Perm] = {}
    groups: dict[str, Perm] = {}

    def __repr__(self) -> str:
        return f"Account(access_key={self.access_key!r}, admin={self.admin})"

    @property
    def may_do_all(self) -> bool:
        """Whether no permission is checked: an administrator without permissions of its own."""
        return self.admin and not self.topics and not self.groups

    def lacks(self, needs: Iterable[Need], address: str = "") -> Need | None:
        """The first permission that the account lacks for a request from this address."""
        if self.may_do_all or (address and self.white_addresses.matches(address)):
            return None
        return next((need for need in needs if not self._meets(need)), None)

    def _meets(self, need: Need) -> bool:
        if need.kind is Kind.TOPIC:
            if need.name == TRACE_TOPIC and need.perm == Perm.PUB:
                return True  # clients write their traces there
            owned = self.topics.get(need.name, self.default_topic_perm)
        else:
            owned = self.groups.get(need.name, self.default_group_perm)
        return not owned & Perm.DENY and bool(owned & need.perm)


class Accounts(msgspec.Struct, frozen=True):
    """All accounts by access key, and the addresses whose requests are not checked."""

    by_key: dict[str, Account] = {}
    white_addresses: tuple[AddressPattern, ...] = ()

    def is_white(self, address: str) -> bool:
        """Whether requests from this address need neither signature nor permission."""
        return any(pattern.matches(address) for pattern in self.white_addresses)
