"""What replication does now, as operators see it (RocketMQ 5: HARuntimeInfo)."""

from typing import NamedTuple


class SlaveState(NamedTuple):
    """One slave as its master sees it; offsets are physical."""

    address: str
    sent: int  # the next byte to send
    acknowledged: int  # the slave has all bytes below
    lag_bytes: int
    lag_ms: int


class ReplicationState(NamedTuple):
    """A master has `slaves`; a slave has `master`, or `trouble` while it follows none."""

    role: str
    slaves: list[SlaveState]
    master: str
    trouble: str

    def figures(self) -> dict[str, object]:
        """The figures of brokerStatus."""
        if self.role == "SLAVE":
            return {
                "brokerRole": self.role,
                "haMaster": self.master or f"none ({self.trouble})",
            }
        slaves = (
            f"{each.address} lag {each.lag_bytes} bytes {each.lag_ms} ms" for each in self.slaves
        )
        return {"brokerRole": self.role, "haSlaves": "; ".join(slaves) or "none"}
