"""Accounts and what they may do (RocketMQ: PlainAccessResource, Permission)."""

from collections.abc import Iterable
from enum import Enum, IntFlag
from typing import NamedTuple

import msgspec

from congreve.broker.accounts.addresses import AddressPattern
from congreve.records.message.topics import DLQ_PREFIX, RETRY_PREFIX, TRACE_TOPIC

KEY_MIN = 7
"""Characters that an access key and a secret key must have."""


class Perm(IntFlag):
    """What an account may do with a topic or group (RocketMQ: Permission)."""

    DENY = 1
    PUB = 4
    SUB = 8

    @property
    def granted(self) -> "Perm":
        """PUB and SUB, as far as they are given: DENY denies both."""
        return Perm(0) if self & Perm.DENY else self & (Perm.PUB | Perm.SUB)


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
    """A request needs one of the bits of `perm` for a topic or a group, or an administrator."""

    kind: Kind
    name: str
    perm: Perm
    admin: bool = False

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


def topic_need(topic: str, perm: Perm) -> Need:
    """What the use of a topic needs; an account that may consume with a group may use its retry
    topic."""
    if topic.startswith(RETRY_PREFIX):
        return Need(Kind.GROUP, topic.removeprefix(RETRY_PREFIX), Perm.SUB)
    return Need(Kind.TOPIC, topic, perm)


class Grant(NamedTuple):
    """Permissions for all names that begin with `name` (`is_prefix`), or only from `sources`; None
    is any address. (RocketMQ 5: PolicyEntry.)
    """

    kind: Kind
    name: str
    is_prefix: bool
    perm: Perm
    sources: AddressPattern | None = None

    def covers(self, kind: Kind, name: str, address: str) -> bool:
        """Whether it is for requests from this address that use this topic or group."""
        if kind is not self.kind:
            return False
        if not (name.startswith(self.name) if self.is_prefix else name == self.name):
            return False
        return self.sources is None or self.sources.matches(address)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One account; names that are neither in `topics` and `groups` nor in `grants` have the default
    permissions.

    Of several grants the first one counts: that of a name comes first, then the longest prefixes;
    one without a name is a default permission that has sources.
    (RocketMQ: PlainAccessResource; of RocketMQ 5: Acl.)
    """

    access_key: str
    secret_key: str
    white_addresses: AddressPattern = AddressPattern()
    admin: bool = False
    default_topic_perm: Perm = Perm.DENY
    default_group_perm: Perm = Perm.DENY
    topics: dict[str, Perm] = {}
    groups: dict[str, Perm] = {}
    grants: tuple[Grant, ...] = ()

    def __repr__(self) -> str:
        return f"Account(access_key={self.access_key!r}, admin={self.admin})"

    @property
    def may_do_all(self) -> bool:
        """Whether no permission is checked: an administrator without permissions of its own."""
        return self.admin and not self.topics and not self.groups and not self.grants

    def lacks(self, needs: Iterable[Need], address: str = "") -> Need | None:
        """The first permission that the account lacks for a request from this address."""
        if self.may_do_all or (address and self.white_addresses.matches(address)):
            return None
        return next((need for need in needs if not self._meets(need, address)), None)

    def topic_perm(self, topic: str, address: str = "") -> Perm:
        """What the account may do with a topic that is not a retry topic."""
        perm = self._named(Kind.TOPIC, topic, address)
        if perm is None:
            perm = self._default(Kind.TOPIC, address)
            if topic.startswith(DLQ_PREFIX):
                # A group's dead letters are of all its topics: no default opens them for reading.
                group = self._named(Kind.GROUP, topic.removeprefix(DLQ_PREFIX), address)
                perm = perm & Perm.PUB | (group or Perm(0)) & Perm.SUB
        return perm | Perm.PUB if topic == TRACE_TOPIC else perm  # clients write their traces there

    def _named(self, kind: Kind, name: str, address: str) -> Perm | None:
        """What a line with the name, or with a prefix of it, gives; None without one."""
        owned = (self.topics if kind is Kind.TOPIC else self.groups).get(name)
        if owned is not None:
            return owned.granted
        return next(
            (
                grant.perm.granted
                for grant in self.grants
                if grant.name and grant.covers(kind, name, address)
            ),
            None,
        )

    def _default(self, kind: Kind, address: str) -> Perm:
        for grant in self.grants:
            if not grant.name and grant.covers(kind, "", address):
                return grant.perm.granted
        perm = self.default_topic_perm if kind is Kind.TOPIC else self.default_group_perm
        return perm.granted

    def _meets(self, need: Need, address: str) -> bool:
        if need.admin:
            return self.admin
        if need.kind is Kind.TOPIC:
            owned = self.topic_perm(need.name, address)
        else:
            named = self._named(Kind.GROUP, need.name, address)
            owned = self._default(Kind.GROUP, address) if named is None else named
        return bool(owned & need.perm)


class Accounts(msgspec.Struct, frozen=True):
    """All accounts by access key, and the addresses whose requests are not checked."""

    by_key: dict[str, Account] = {}
    white_addresses: tuple[AddressPattern, ...] = ()

    def is_white(self, address: str) -> bool:
        """Whether requests from this address need neither signature nor permission."""
        return any(pattern.matches(address) for pattern in self.white_addresses)
