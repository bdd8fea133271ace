"""What an answer under SYNC_FLUSH guarantees, on failing disks."""

from __future__ import annotations

import errno
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pytest
from broker.serving.test_fastpath import SHORT, config_of
from broker.serving.test_lanes import create, running
from harness.wire import SEND_MESSAGE_V2, Wire
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan
from congreve.io_backends.mapped.mapped import MmapBackend

TIMEOUT_MS = 60
SUCCESS, FLUSH_DISK_TIMEOUT, SERVICE_NOT_AVAILABLE = 0, 10, 14
SLOW = Fault(delay_s=0.2)
GROUPS = st.dictionaries(
    st.integers(1, 12),
    st.sampled_from([Fault(delay_s=0.005), SLOW, Fault(error=errno.EIO)]),
    max_size=4,
)
# The sender, how many messages it sends at once, and whether they wait for the disk.
BURSTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8), st.booleans()), max_size=12)


@pytest.mark.parametrize("vip", [False, True], ids=["compiled", "handlers"])
@settings(max_examples=settings.default.max_examples // 5, deadline=None)
@given(groups=GROUPS, bursts=BURSTS)
def test_a_response_confirms_only_durable_messages(
    vip: bool, groups: dict[int, Fault], bursts: list[tuple[int, int, bool]]
) -> None:
    backend = FaultBackend(MmapBackend(), FaultPlan(groups=groups))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(Path(folder), "SYNC_FLUSH")
        config.store.sync_flush_timeout = TIMEOUT_MS
        config.store.message_index_enable = False
        with running(config, backend) as (broker, _):
            create(broker, "T")
            port = broker.port - 2 if vip else broker.port  # the VIP port has only handlers
            wires = [Wire(f"127.0.0.1:{port}") for _ in range(3)]
            failed_before = False
            for sender, count, waits in bursts:
                wire = wires[sender]
                properties = f"WAIT\x01{str(waits).lower()}"
                sent_at = time.monotonic()
                opaques = {
                    wire.send(SEND_MESSAGE_V2, SHORT | {"b": "T", "e": "0", "i": properties}, b"x")
                    for _ in range(count)
                }
                codes: dict[int, list[int]] = defaultdict(list)
                while opaques:
                    answer = wire.receive()
                    opaques.remove(answer.opaque)  # a refusal may overtake waiting answers
                    end = int(answer.fields.get("msgId", "0" * 32)[16:], 16)
                    codes[answer.code].append(end)
                    if answer.code == SUCCESS and waits:
                        assert end < backend.durable_offset
                        assert not failed_before, "nothing is durable after a failure"
                    if answer.code == FLUSH_DISK_TIMEOUT:  # the machine may be slow, too
                        assert time.monotonic() - sent_at > TIMEOUT_MS / 2_000
                assert set(codes) <= {SUCCESS, FLUSH_DISK_TIMEOUT, SERVICE_NOT_AVAILABLE}, codes
                if not waits and not backend.failure_errno:
                    assert set(codes) == {SUCCESS}
                if SERVICE_NOT_AVAILABLE in codes:
                    assert backend.failure_errno == errno.EIO
                failed_before = failed_before or SERVICE_NOT_AVAILABLE in codes
            for wire in wires:
                wire.close()


@pytest.mark.parametrize("backend", ["mmap", "pool", "uring"])
def test_no_answer_of_a_handler_misses_its_write(backend: str, tmp_path: Path) -> None:
    """The write may be complete, and its event taken, before the answer comes to its lane."""
    config = config_of(tmp_path, "SYNC_FLUSH")
    config.store.io_backend = backend
    config.store.sync_flush_timeout = 60_000
    with running(config) as (broker, _):
        create(broker, "T")
        with Wire(f"127.0.0.1:{broker.port - 2}", timeout_s=30) as wire:
            for _ in range(300):
                assert (
                    wire.call(SEND_MESSAGE_V2, SHORT | {"b": "T", "e": "0"}, b"x").code == SUCCESS
                )
