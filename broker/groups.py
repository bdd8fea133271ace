"""What consumer groups may do here (RocketMQ: SubscriptionGroupManager)."""

import logging
import re
from collections.abc import Callable

import msgspec

from congreve.broker.config import BrokerConfig
from congreve.engine.clock import Clock
from congreve.remoting import fastjson
from congreve.remoting.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)

logger = logging.getLogger(__name__)

TOOLS_CONSUMER = "TOOLS_CONSUMER"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
GROUP_NAME_MAX = 255
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")

_SYSTEM_GROUPS = (
    TOOLS_CONSUMER,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


def group_name_fault(group: str) -> str | None:
    """What is wrong with a group's name, or None (the client's Validators.checkGroup)."""
    if not group.strip():
        return "The specified group is blank"
    if not _NAME.fullmatch(group):
        return (
            f"The specified group contains illegal characters: [{group}];"
            " % | a-z A-Z 0-9 _ - are allowed"
        )
    if len(group) > GROUP_NAME_MAX:
        return (
            f"The specified group[{group}] is longer than {GROUP_NAME_MAX} characters: {len(group)}"
        )
    return None


class SubscriptionGroupManager:
    """The table of groups; configs in it are replaced, never edited in place.

    `changed` is called after each change that must reach subscriptionGroup.json.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.changed: Callable[[], None] = _nobody_cares
        self.table: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(group_name=name) for name in _SYSTEM_GROUPS
        }
        self.data_version = DataVersion(counter=0, timestamp=clock.now())

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; made on first sight where autoCreateSubscriptionGroup allows it."""
        known = self.table.get(group)
        if known is not None:
            return known
        allowed = self._config.auto_create_subscription_group or group.startswith(
            SYSTEM_GROUP_PREFIX
        )
        if not allowed or group_name_fault(group) is not None:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        logger.info("consumer group %s created on first sight", group)
        self.update(created)
        return created

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group."""
        self.table[config.group_name] = config
        self._version_changed()

    def delete(self, group: str) -> bool:
        """False when there was no such group."""
        if self.table.pop(group, None) is None:
            return False
        self._version_changed()
        return True

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The whole table: body of code 201 and content of subscriptionGroup.json."""
        return SubscriptionGroupWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            subscription_group_table=dict(self.table),
        )

    def load(self, text: str) -> None:
        """Take what subscriptionGroup.json holds on top of the system groups."""
        stored = SubscriptionGroupWrapper.from_tree(fastjson.loads(text))
        self.table |= stored.subscription_group_table
        self.data_version = stored.data_version

    def _version_changed(self) -> None:
        self.data_version = DataVersion(
            counter=self.data_version.counter + 1, timestamp=self._clock.now()
        )
        self.changed()


def _nobody_cares() -> None:
    """What a manager without a file calls."""
