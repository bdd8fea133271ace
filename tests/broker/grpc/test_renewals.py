"""Messages that a push consumer holds longer than their invisible time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import numpy
import pytest
from harness.eventually import eventually

from congreve.base.clock import ManualClock
from congreve.broker.broker import Broker
from congreve.broker.grpc import renewals
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.renewals import RENEWED_MAX_MS, RENEWED_MS, Renewals
from congreve.broker.pop.service import Pops
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.limits import PopLimits
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from remoting.http2.built import needs_http2

from .clients import open_telemetry
from .test_consuming import consuming

pytestmark = needs_http2

BEGIN_MS = 1_700_000_000_000


class _Pops:
    """The windows of one group, without a broker."""

    def __init__(self) -> None:
        self.in_flight = InFlight(PopLimits())

    def changed(self) -> None:
        """There is no journal."""


class _Held:
    """What a client got from one queue by one pop, and the passing of time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ordered: bool = False) -> None:
        self.clock, self.pops, self.open = ManualClock(BEGIN_MS), _Pops(), {"c"}
        self.window: PopWindow = self.pops.in_flight.window("g", "T", 0, 0)
        self.window.take(numpy.array([0, 2, 3]), 4, BEGIN_MS, RENEWED_MS, ordered)
        monkeypatch.setattr(renewals, "WakeUpTimer", lambda _: _NoTimer())
        self.renewals = Renewals(cast(Pops, self.pops), self.clock, self.open.__contains__)
        handles = [
            PopHandle(0, BEGIN_MS, RENEWED_MS, 0, PoppedFrom.TOPIC, "b", 0, offset)
            for offset in (0, 2, 3)
        ]
        self.renewals.hold("c", "g", "T", handles)

    def pass_to(self, seconds: float) -> list[int]:
        """What is due by that time, since the pop."""
        due: list[int] = []
        while self.clock.now() < BEGIN_MS + seconds * 1000:
            self.clock.advance(1_000)
            self.renewals._look()
            for each in self.pops.in_flight.due(self.clock.now(), 100):
                due += each.rows[:, 0].tolist()
        return due


class _NoTimer:
    def set(self, _: float) -> None:
        """The test looks."""


def test_7837_what_a_client_holds_is_not_due_and_its_handle_stays_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = _Held(monkeypatch)
    assert held.pass_to(180) == []
    assert held.window.ack(2, BEGIN_MS) == 0
    assert held.pass_to(240) == []
    assert [row[0] for row in held.window.messages_out(0, 10).tolist()] == [0, 3]
    assert {held.window.ack(offset, BEGIN_MS) for offset in (0, 3)} == {0}
    held.pass_to(300)
    assert len(held.renewals) == 0


def test_messages_are_renewed_for_three_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _Held(monkeypatch)
    assert held.pass_to(RENEWED_MAX_MS // 1000) == []
    assert sorted(held.pass_to(RENEWED_MAX_MS // 1000 + 60)) == [0, 2, 3]
    assert len(held.renewals) == 0


def test_what_has_been_acknowledged_is_soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _Held(monkeypatch)
    held.window.ack_all(numpy.array([0, 2, 3]), BEGIN_MS)
    held.pass_to(6)
    assert len(held.renewals) == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_change_by_the_client_counts(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    held = _Held(monkeypatch, ordered=ordered)
    held.pass_to(3)
    if ordered:  # the batch keeps its pop time
        held.window.extend(2, BEGIN_MS, BEGIN_MS, 5_000)
    else:
        held.window.extend(2, BEGIN_MS, BEGIN_MS + 3_000, 2_000)
    assert held.pass_to(130) == [2]


def test_what_a_client_held_that_is_gone_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    held = _Held(monkeypatch)
    held.pass_to(100)
    held.renewals.client_gone("c")
    assert sorted(held.pass_to(102)) == [0, 2, 3]
    assert len(held.renewals) == 0


@pytest.mark.parametrize("returns", [False, True])
def test_a_client_may_open_its_telemetry_again(
    monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    held = _Held(monkeypatch)
    held.pass_to(100)
    held.open.discard("c")
    held.renewals.telemetry_ended("c")
    held.pass_to(102)
    if returns:
        held.open.add("c")
    assert sorted(held.pass_to(200)) == ([] if returns else [0, 2, 3])


@pytest.mark.parametrize("stops", [False, True])
def test_heartbeats_keep_what_a_client_without_telemetry_holds(
    monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    held = _Held(monkeypatch)
    held.open.discard("c")
    held.renewals.telemetry_ended("c")
    for seconds in range(10, 200, 10):
        held.renewals.heard("c")
        assert held.pass_to(seconds) == []
    for seconds in range(200, 340, 10):
        if not stops:
            held.renewals.heard("c")
        held.pass_to(seconds)
    assert len(held.renewals) == (0 if stops else 1)
    held.renewals.client_gone("c")
    held.renewals.heard("stranger")
    held.pass_to(350)
    assert (len(held.renewals), held.renewals._heard_ms) == (0, {})


# --- a broker


def test_7837_messages_stay_with_their_push_consumer_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "RENEWED_MS", 6_000)
    with consuming(tmp_path) as (broker, made, consumer):
        bodies = [b"%d" % number for number in range(8)]
        for body in bodies:
            made.send(made.message("Normal", body))
        settings = made.protos.Settings(client_type=2)
        settings.subscription.group.name = "g"
        with open_telemetry(made, settings):
            found: dict[bytes, Any] = {}
            while len(found) < len(bodies):
                _, messages = consumer.receive(auto_renew=True)
                found |= {each.body: each for each in messages}
            asyncio.run(eventually(lambda: min(map(_hidden_ms, _windows(broker))) > 6_000))
            assert consumer.receive(0)[0] == Code.MESSAGE_NOT_FOUND
            acked = found.pop(b"0")
            assert consumer.ack(acked).status.code == Code.OK
            ending = made.protos.NotifyClientTerminationRequest(group=consumer.group)
            made.call("NotifyClientTermination", ending)
            again: set[bytes] = set()
            while len(again) < len(found):
                again |= {each.body for each in consumer.receive()[1]}
            assert again == found.keys()


def _windows(broker: Broker) -> list[PopWindow]:
    windows = broker.managers.pops.in_flight.all_windows()
    return [window for window in windows if window.out]


def _hidden_ms(window: PopWindow) -> int:
    return int(window.messages_out(0, 100)[:, 2].min())
