"""What replication does now, as operators see it (RocketMQ 5: HARuntimeInfo)."""

from typing import NamedTuple


class SlaveState(NamedTuple):
    """One slave as its master sees it; offsets are physical.

    `member` is the number of a slave that takes part in an election.
    """

    address: str
    sent: int  # the next byte to send
    acknowledged: int  # the slave has all bytes below
    lag_bytes: int
    lag_ms: int
    member: int | None = None


class ElectionState(NamedTuple):
    """The election's state at a member (RocketMQ 5: EpochEntryCache, SyncStateSet).

    `epochs` are pairs of a number and the physical offset where it begins. A master also has the
    in-sync set, and for how long its lease lasts without a renewal. One that was the master has the
    number of requests that it has handed on to the new one since, and the time without any.
    """

    member: int
    epochs: tuple[tuple[int, int], ...]
    in_sync: tuple[int, ...] = ()
    lease_ms: int = 0
    handed_on: int | None = None
    quiet_ms: int = 0

    @property
    def epoch(self) -> int:
        """The newest epoch, -1 without one."""
        return self.epochs[-1][0] if self.epochs else -1


class ReplicationState(NamedTuple):
    """A master has `slaves`; a slave has `master`, or `trouble` while it follows none.

    `election` is None unless an election decides the role. Otherwise slaves that are less than
    `behind_max` bytes behind are in sync: sends to a SYNC_MASTER may wait for them. `repairs` are
    the brokers that can be asked for damaged records, or why there are none.
    """

    role: str
    slaves: list[SlaveState]
    master: str
    trouble: str
    election: ElectionState | None = None
    behind_max: int = 0
    repairs: str = "none"

    def is_in_sync(self, slave: SlaveState) -> bool:
        """Whether the slave is in the in-sync set (RocketMQ 5: isInSyncSlave, syncStateSet)."""
        if self.election is None:
            return slave.lag_bytes < self.behind_max
        return slave.member in self.election.in_sync

    def figures(self) -> dict[str, object]:
        """The figures of brokerStatus."""
        if self.role == "SLAVE":
            return {
                "brokerRole": self.role,
                "haRepairs": self.repairs,
                "haMaster": self.master or f"none ({self.trouble})",
                **self._of_election(),
            }
        slaves = (
            f"{each.address} lag {each.lag_bytes} bytes {each.lag_ms} ms" for each in self.slaves
        )
        in_sync = (each.address for each in self.slaves if self.is_in_sync(each))
        return {
            "brokerRole": self.role,
            "haRepairs": self.repairs,
            "haSlaves": "; ".join(slaves) or "none",
            "haInSync": "; ".join(in_sync) or "none",
            **self._of_election(),
        }

    def _of_election(self) -> dict[str, object]:
        election = self.election
        if election is None:
            return {}
        in_sync = ",".join(map(str, election.in_sync))
        handed_on = election.handed_on
        return {
            "haMember": election.member,
            "haEpoch": election.epoch,
            **({} if handed_on is None else {"haHandedOn": handed_on}),
            **({} if handed_on is None else {"haQuietMillis": election.quiet_ms}),
            **({"haInSync": in_sync, "haLeaseMillis": election.lease_ms} if in_sync else {}),
        }
