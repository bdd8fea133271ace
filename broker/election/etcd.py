"""A group's state in etcd, over the JSON gateway of its version 3 API."""

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

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

RETRY_S = 0.2
"""The pause after a watch that failed, in seconds."""
# gRPC codes of a request that etcd refused without carrying it out.
_INVALID, _NOT_FOUND, _DENIED, _UNAUTHENTICATED = 3, 5, 7, 16
_REFUSED = (_INVALID, _NOT_FOUND, _DENIED, _UNAUTHENTICATED)
_OLD_TOKEN = "revision of auth store is old"


class EtcdAccount(NamedTuple):
    """A user of etcd; its role has to allow reads and writes below /congreve/."""

    name: str
    password: str


class _TokenError(CoordinatorError):
    """etcd does not know the token any more: it has forgotten it, or its accounts have changed."""


class _InSync(msgspec.Struct, omit_defaults=True):
    """The value of the key `set`."""

    epoch: int
    members: list[int]
    request: ElectRequest | None = None
    since: int = 0


class _Lease(msgspec.Struct, rename="upper"):
    """A lease in etcd's answers and requests; a lease that has ended has no `ttl`."""

    id: str = "0"
    ttl: int = 0


class EtcdCoordinator:
    """The keys `master`, bound to a lease, `set` and `seats` below /congreve/CLUSTER/GROUP.

    A change is one transaction: `master` was created at the revision, and the others last written
    at the revisions, that the member has read. A change of the set leaves the seats alone: members
    of earlier versions, which write `set`, do not know them. Endpoints are tried in turn, beginning
    with the last that answered. (RocketMQ: the controller's Raft group.)
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster: str,
        group: str,
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        account: EtcdAccount | None = None,
    ) -> None:
        self._account = account
        self._token = ""
        self._endpoints = [
            JsonHttp(endpoint, tls=tls, headers=self._headers) for endpoint in endpoints
        ]
        self._prefix = f"/congreve/{cluster}/{group}/"
        self._timeout_s = timeout_s
        self._lease: str | None = None

    async def read(self) -> GroupState:
        """The state now: a linearizable read of all keys."""
        return self._state(await self._range())

    async def elect(self, seen: GroupState, candidate: Master, ttl_s: int) -> GroupState:
        """Grant a lease, then write `master` and `set` if no key has changed."""
        if self._lease is not None:
            await self._revoke(self._lease)  # of an election whose outcome was unknown
            self._lease = None
        wanted = _Lease(ttl=ttl_s)
        granted = await self._call("/v3/lease/grant", wanted, repeatable=True)
        lease = _lease(granted).id
        *_, seats_revision = seen.guard
        compare = self._unchanged(seen, master=0)
        state = seen.elected(candidate)
        puts = [
            self._put("master", msgspec.json.encode(candidate), lease),
            self._put_set(state),
        ]
        try:
            revision = await self._change(compare, puts)
        except OutcomeUnknownError:
            self._lease = lease
            raise
        except CoordinatorError:
            await self._revoke(lease)
            raise
        self._lease = lease
        guard = (revision, revision, seats_revision)
        return msgspec.structs.replace(state, guard=guard)

    async def keep_alive(self) -> None:
        """Renew the lease that the last election granted."""
        if self._lease is None:
            raise LeaseLostError("this member has no lease")
        body = {"ID": self._lease}
        answer = await self._call("/v3/lease/keepalive", body, repeatable=True)
        if "error" in answer:
            raise CoordinatorError(f"etcd does not renew the lease: {answer['error']}")
        if _lease(answer.get("result", {})).ttl <= 0:
            self._lease = None
            raise LeaseLostError("the lease of this member has ended in etcd")

    async def change_set(self, seen: GroupState, members: frozenset[int], since: int) -> GroupState:
        """Write the set if `master` still is the key that this member created."""
        master_revision, _, seats_revision = seen.guard
        compare = self._unchanged(seen)[:2]
        state = msgspec.structs.replace(seen, in_sync=members, since=since, request=None)
        revision = await self._change(compare, [self._put_set(state)])
        guard = (master_revision, revision, seats_revision)
        return msgspec.structs.replace(state, guard=guard)

    async def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        """Write the seats if no key has changed."""
        seats = {**seen.seats, member: seat}
        put = self._put("seats", msgspec.json.encode(seats))
        revision = await self._change(self._unchanged(seen), [put])
        return msgspec.structs.replace(seen, guard=(*seen.guard[:2], revision), seats=seats)

    async def request_election(self, seen: GroupState, request: ElectRequest | None) -> GroupState:
        """Write the set again, with the request, if no key has changed."""
        master_revision, _, seats_revision = seen.guard
        state = msgspec.structs.replace(seen, request=request)
        revision = await self._change(self._unchanged(seen), [self._put_set(state)])
        guard = (master_revision, revision, seats_revision)
        return msgspec.structs.replace(state, guard=guard)

    async def resign(self) -> None:
        """Revoke the lease: etcd removes the key `master` with it."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await self._revoke(lease)

    async def changed(self, seen: GroupState, limit_s: float) -> GroupState:
        """Watch the keys; the state is read again after an event, or after the time."""
        try:
            async with asyncio.timeout(limit_s):
                await self._wait_for_event(seen)
        except TimeoutError:
            pass
        except CoordinatorError:
            await asyncio.sleep(min(RETRY_S, limit_s))  # reads work without watches
        return await self.read()

    async def close(self) -> None:
        """There is nothing to free: a request has its own connection."""

    async def _wait_for_event(self, seen: GroupState) -> None:
        answer = await self._range()
        if self._state(answer) != seen:
            return
        # From the read on: etcd may have compacted the revisions of keys that rarely change.
        start = int(answer["header"]["revision"]) + 1
        body = {"create_request": {**self._all_keys, "start_revision": str(start)}}
        events = self._endpoints[0].stream("POST", "/v3/watch", body, self._timeout_s)
        async for event in events:
            result = event.get("result", {})
            if result.get("events") or result.get("canceled") or "error" in event:
                return

    @property
    def _all_keys(self) -> dict[str, str]:
        return {"key": _text(self._prefix), "range_end": _text(self._prefix[:-1] + "0")}

    async def _range(self) -> dict[str, Any]:
        return await self._call("/v3/kv/range", self._all_keys, repeatable=True)

    async def _revoke(self, lease: str) -> None:
        with suppress(CoordinatorError):  # it expires anyway
            await self._call("/v3/lease/revoke", {"ID": lease}, repeatable=True)

    async def _change(self, compare: list[dict[str, Any]], puts: list[dict[str, Any]]) -> int:
        """Run a transaction; returns its revision."""
        answer = await self._call(
            "/v3/kv/txn", {"compare": compare, "success": puts}, repeatable=False
        )
        if not answer.get("succeeded"):
            raise StateChangedError(f"{self._prefix} has changed since this member read it")
        return int(answer["header"]["revision"])

    def _unchanged(self, seen: GroupState, master: int | None = None) -> list[dict[str, Any]]:
        """That the keys are as in `seen`; `master` replaces the revision of that key."""
        created, written, noted = seen.guard
        return [
            self._compare("master", "CREATE", created if master is None else master),
            self._compare("set", "MOD", written),
            self._compare("seats", "MOD", noted),
        ]

    def _compare(self, key: str, target: str, revision: int | str) -> dict[str, Any]:
        field = "create_revision" if target == "CREATE" else "mod_revision"
        return {
            "key": _text(self._prefix + key),
            "target": target,
            "result": "EQUAL",
            field: str(revision),
        }

    def _put(self, key: str, value: bytes, lease: str = "0") -> dict[str, Any]:
        encoded = b64encode(value).decode()
        return {"request_put": {"key": _text(self._prefix + key), "value": encoded, "lease": lease}}

    def _put_set(self, state: GroupState) -> dict[str, Any]:
        value = _InSync(state.epoch, sorted(state.in_sync), state.request, state.since)
        return self._put("set", msgspec.json.encode(value))

    def _state(self, answer: dict[str, Any]) -> GroupState:
        found = {b64decode(pair["key"]).decode(): pair for pair in answer.get("kvs", [])}
        master = found.get(self._prefix + "master")
        in_sync = found.get(self._prefix + "set")
        seats = found.get(self._prefix + "seats")
        try:
            holder = None if master is None else msgspec.json.decode(_value(master), type=Master)
            known = _InSync(0, [])
            if in_sync is not None:
                known = msgspec.json.decode(_value(in_sync), type=_InSync)
            noted = b"{}" if seats is None else _value(seats)
            seats_now = msgspec.json.decode(noted, type=dict[int, Seat])
        except msgspec.DecodeError as error:
            raise CoordinatorError(f"{self._prefix} in etcd is damaged: {error}") from error
        guard = (
            0 if master is None else int(master["create_revision"]),
            0 if in_sync is None else int(in_sync["mod_revision"]),
            0 if seats is None else int(seats["mod_revision"]),
        )
        in_sync_now = frozenset(known.members)
        return GroupState(
            *(holder, known.epoch, in_sync_now, guard, known.request, seats_now, known.since)
        )

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _call(self, path: str, body: object, *, repeatable: bool) -> dict[str, Any]:
        """POST as the account, with a new token where etcd does not take the old one."""
        if self._account is None:
            return await self._post(path, body, repeatable=repeatable)
        if not self._token:
            await self._log_in(self._account)
        try:
            return await self._post(path, body, repeatable=repeatable)
        except _TokenError:
            await self._log_in(self._account)
            return await self._post(path, body, repeatable=repeatable)

    async def _log_in(self, account: EtcdAccount) -> None:
        self._token = ""
        body = {"name": account.name, "password": account.password}
        answer = await self._post("/v3/auth/authenticate", body, repeatable=True)
        self._token = str(answer.get("token", ""))

    async def _post(self, path: str, body: object, *, repeatable: bool) -> dict[str, Any]:
        """POST to the first endpoint that answers.

        Only a `repeatable` request goes to another endpoint after one that may have carried it out.
        """
        failures: list[CoordinatorError] = []
        for endpoint in tuple(self._endpoints):
            try:
                answer = await endpoint.request("POST", path, body, self._timeout_s)
                if answer.status == 200:
                    self._endpoints.remove(endpoint)
                    self._endpoints.insert(0, endpoint)
                    return answer.body
                why = str(answer.body.get("error") or f"HTTP status {answer.status}")
                raise _kind(answer.body.get("code"), why)(f"{endpoint.url}{path}: {why}")
            except _TokenError:
                raise
            except CoordinatorError as error:
                failures.append(error)
                if isinstance(error, OutcomeUnknownError) and not repeatable:
                    break
        texts = "; ".join(str(failure) for failure in failures)
        unknown = any(isinstance(failure, OutcomeUnknownError) for failure in failures)
        raise (OutcomeUnknownError if unknown else CoordinatorError)(texts)


def _kind(code: object, why: str) -> type[CoordinatorError]:
    """The error for a gRPC code: whether etcd may have carried the request out."""
    if code == _UNAUTHENTICATED or (code == _INVALID and _OLD_TOKEN in why):
        return _TokenError
    return CoordinatorError if code in _REFUSED else OutcomeUnknownError


def _lease(answer: object) -> _Lease:
    try:
        return msgspec.convert(answer, _Lease, strict=False)
    except msgspec.ValidationError as error:
        raise CoordinatorError(f"etcd's answer about a lease is damaged: {error}") from error


def _text(key: str) -> str:
    return b64encode(key.encode()).decode()


def _value(pair: dict[str, Any]) -> bytes:
    return b64decode(pair.get("value", ""))
