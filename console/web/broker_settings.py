"""A broker's settings beside their defaults."""

from collections.abc import Iterable, Mapping

import msgspec

SECRETS = ("secret", "password")


class SettingRow(msgspec.Struct, frozen=True):
    """A setting of a broker; `default` is None where the console does not know it.

    `change` is when a change over the network takes effect: `now`, `after a restart`, or None if
    only the configuration file can change it.
    """

    key: str
    value: str
    default: str | None
    change: str | None

    @property
    def differs(self) -> bool:
        """Whether the value is not the default."""
        return self.default is not None and self.value != self.default


def compare(values: Mapping[str, str], *, is_congreve: bool) -> list[SettingRow]:
    """A row for each setting, those that differ from their default first.

    Defaults come from Congreve's table, which has those of RocketMQ 4.9.4. A RocketMQ broker
    changes every setting at once, so that only its file decides what a change does.
    """
    from congreve.broker.config import BrokerConfig, all_settings

    table = all_settings()
    defaults = BrokerConfig().as_properties()
    rows = []
    for key, value in values.items():
        known = table.get(key)
        change = "now" if not is_congreve else None
        if is_congreve and known is not None and known.change is not None:
            change = known.change.value
        default = None if _is_of_this_machine(key) else defaults.get(key)
        rows.append(SettingRow(key, _without_secret(key, value), default, change))
    return sorted(rows, key=lambda row: (not row.differs, row.key))


def _is_of_this_machine(key: str) -> bool:
    """Whether the default depends on the machine of the process that computes it."""
    return key in ("brokerIP1", "brokerIP2", "brokerName", "networkThreads") or "Path" in key


def _without_secret(key: str, value: str) -> str:
    return "(not shown)" if any(word in key.lower() for word in SECRETS) and value else value


def find(rows: Iterable[SettingRow], key: str) -> SettingRow | None:
    """The row of a setting, None without one."""
    return next((row for row in rows if row.key == key), None)
