"""A group's state in a Lease object of Kubernetes (coordination.k8s.io/v1)."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from congreve.broker.election.coordinator import (
    CoordinatorError,
    ElectRequest,
    GroupState,
    LeaseLostError,
    Master,
    OutcomeUnknownError,
    Seat,
    StateChangedError,
)
from congreve.broker.election.json_http import JsonHttp

T = TypeVar("T")
POLL_S = 0.5
"""Seconds between two reads of the object while a member waits for a change."""
ANNOTATION = "congreve/state"
SEATS = "congreve/seats"
"""The annotation of the seats: members of earlier versions, which write the other one, keep it."""
_NOT_FOUND, _CONFLICT = 404, 409


class _State(msgspec.Struct):
    """The value of the annotation: the state for which a Lease has no field."""

    epoch: int
    members: list[int]
    master: Master | None = None
    request: ElectRequest | None = None
    since: int = 0


class KubernetesCoordinator:
    """One Lease object a group; each change replaces it at the resource version that was read.

    Kubernetes ends no lease. A member considers it ended when it has seen no renewal for the whole
    duration by its own clock; two members may differ in this, which is safe: acknowledgements need
    every member of the in-sync set. (RocketMQ: the controller's Raft group.)
    """

    def __init__(
        self,
        api: JsonHttp,
        namespace: str,
        name: str,
        *,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._held: Master | None = None
        self._seen: tuple[str, float] = ("", 0.0)  # the last renewal, and when it was first seen
        self._lock = asyncio.Lock()  # renewals and changes of the set replace the same object

    async def read(self) -> GroupState:
        """The state of the object; the master is None once its lease has ended."""
        return self._state_of(await self._get())

    async def elect(self, seen: GroupState, candidate: Master, ttl_s: int) -> GroupState:
        """Replace the object, or create it, if it has not changed and its lease has ended."""
        async with self._lock:
            lease = await self._get()
            if self._state_of(lease) != seen or seen.master is not None:
                raise StateChangedError(f"the Lease {self._name} has changed")
            self._held = candidate
            made = seen.elected(candidate)
            state = _State(made.epoch, sorted(made.in_sync), candidate, since=made.since)
            now = _now()
            spec = {
                "holderIdentity": str(candidate.member),
                "leaseDurationSeconds": ttl_s,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": candidate.epoch,
            }
            return self._state_of(await self._write(lease, spec, state))

    async def keep_alive(self) -> None:
        """Write a new `renewTime`."""
        async with self._lock:
            lease, state = await self._own()
            await self._write(lease, {"renewTime": _now()}, state)

    async def change_set(self, seen: GroupState, members: frozenset[int], since: int) -> GroupState:
        """Write the set, with a renewal."""
        async with self._lock:
            lease, state = await self._own()
            known = (frozenset(state.members), state.epoch, state.request)
            if known != (seen.in_sync, seen.epoch, seen.request):
                raise StateChangedError(f"the Lease {self._name} has changed")
            state.members, state.since = sorted(members), since
            return self._state_of(await self._write(lease, {"renewTime": _now()}, state))

    async def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        """Write the seats into their annotation."""
        async with self._lock:
            lease = await self._get()
            if self._state_of(lease) != seen:
                raise StateChangedError(f"the Lease {self._name} has changed")
            seats = {**seen.seats, member: seat}
            return self._state_of(await self._write(lease, {}, _decoded(lease), seats))

    async def request_election(self, seen: GroupState, request: ElectRequest | None) -> GroupState:
        """Write the request into the annotation."""
        async with self._lock:
            lease = await self._get()
            if self._state_of(lease) != seen:
                raise StateChangedError(f"the Lease {self._name} has changed")
            state = _decoded(lease)
            state.request = request
            return self._state_of(await self._write(lease, {}, state))

    async def resign(self) -> None:
        """Write an empty holder."""
        async with self._lock:
            if self._held is None:
                return
            try:
                lease, state = await self._own()
            except LeaseLostError:
                return
            state.master = self._held = None
            await self._write(lease, {"holderIdentity": ""}, state)

    async def changed(self, seen: GroupState, limit_s: float) -> GroupState:
        """Read the object again and again."""
        until = self._monotonic() + limit_s
        while (state := await self.read()) == seen and (left := until - self._monotonic()) > 0:
            await asyncio.sleep(min(POLL_S, left))
        return state

    async def close(self) -> None:
        """There is nothing to free: a request has its own connection."""

    async def _get(self) -> dict[str, Any]:
        """The object; without one, an object that is not written yet."""
        path = f"{self._folder}/{self._name}"
        answer = await self._api.request("GET", path, None, self._timeout_s)
        if answer.status == _NOT_FOUND:
            return {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": {}}
        return _accepted(answer.status, answer.body)

    async def _own(self) -> tuple[dict[str, Any], _State]:
        """The object and its state, if this member is its master. Raises LeaseLostError."""
        lease = await self._get()
        state = _decoded(lease)
        if self._held is None or state.master != self._held:
            self._held = None
            raise LeaseLostError(f"the Lease {self._name} does not belong to this member")
        return lease, state

    async def _write(
        self,
        lease: dict[str, Any],
        spec: dict[str, Any],
        state: _State,
        seats: dict[int, Seat] | None = None,
    ) -> dict[str, Any]:
        metadata = dict(lease["metadata"])
        annotations = dict(metadata.get("annotations") or {})
        annotations[ANNOTATION] = msgspec.json.encode(state).decode()
        if seats is not None:
            annotations[SEATS] = msgspec.json.encode(seats).decode()
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**lease["spec"], **spec},
        }
        exists = "resourceVersion" in metadata
        method: Literal["PUT", "POST"] = "PUT" if exists else "POST"
        path = f"{self._folder}/{self._name}" if exists else self._folder
        answer = await self._api.request(method, path, body, self._timeout_s)
        if answer.status == _CONFLICT:
            raise StateChangedError(f"the Lease {self._name} has changed")
        return _accepted(answer.status, answer.body)

    def _state_of(self, lease: dict[str, Any]) -> GroupState:
        state = _decoded(lease)
        spec = lease["spec"]
        renewal = f"{state.epoch} {spec.get('renewTime')}"
        if renewal != self._seen[0]:
            self._seen = renewal, self._monotonic()
        ended = self._monotonic() - self._seen[1] >= float(spec.get("leaseDurationSeconds") or 0)
        master = None if ended or not spec.get("holderIdentity") else state.master
        return GroupState(
            master,
            state.epoch,
            frozenset(state.members),
            request=state.request,
            seats=_seats(lease),
            since=state.since,
        )


def _accepted(status: int, body: dict[str, Any]) -> dict[str, Any]:
    """The answer's object. Raises OutcomeUnknownError for an error of the server itself."""
    if status in (200, 201):
        return body
    kind = OutcomeUnknownError if status >= 500 else CoordinatorError
    raise kind(f"Kubernetes answered with status {status}: {body.get('message', '')}")


def _decoded(lease: dict[str, Any]) -> _State:
    return _annotation(lease, ANNOTATION, _State) or _State(0, [])


def _seats(lease: dict[str, Any]) -> dict[int, Seat]:
    return _annotation(lease, SEATS, dict[int, Seat]) or {}


def _annotation(lease: dict[str, Any], name: str, kind: type[T]) -> T | None:
    text = (lease["metadata"].get("annotations") or {}).get(name)
    try:
        return None if text is None else msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise CoordinatorError(f"the annotation {name} is damaged: {error}") from error


def _now() -> str:
    """The time as a MicroTime; no program reads it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
