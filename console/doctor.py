"""``congreve doctor``: checks a machine and a broker's settings, and says what to change."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from congreve.base.byte_size import readable_size
from congreve.base.errors import CongreveError
from congreve.console.report import output_option, show
from congreve.console.topic_kinds import kind_of

if TYPE_CHECKING:
    from congreve.broker.broker_conf import LoadedConfig
    from congreve.broker.config import BrokerConfig
    from congreve.client.admin.client import AdminClient
    from congreve.remoting.messages.bodies import ClusterInfo
    from congreve.remoting.messages.signature import Credentials

NAME_SERVER_TIMEOUT_S = 3.0
LEAST_FILES = 65_536
LEAST_MAPPINGS = 262_144
MOST_SWAPPINESS = 10
LONE_SHOWN = 10
"""Names of topics that a line shows."""
URING_WINDOW = 64 << 20
_TIME_ERROR = 5
"""adjtimex() returns it while nothing adjusts the clock (TIME_ERROR)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its subject, the value, and what to change."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


class Doctor:
    """The checks of one machine, of the settings in `loaded` and of the store's folder.

    `conf` is the broker.conf; `system` has the files of /proc/sys; `limit` is
    resource.getrlimit; `clock_state` is the result of adjtimex(), or None where the system has
    none.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        conf: Path | None = None,
        system: Path = Path("/proc/sys"),
        limit: Callable[[int], tuple[int, int]] = resource.getrlimit,
        clock_state: Callable[[], int | None] | None = None,
        time_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._config = loaded.config
        self._unknown = loaded.unknown
        self._conf = conf
        self._credentials: Credentials | None = None  # those of the broker itself
        self._root = Path(loaded.config.store.root_dir)
        self._system = system
        self._limit = limit
        self._clock_state = clock_state or _clock_state
        self._time_ms = time_ms

    def findings(self) -> Iterator[Finding]:
        """All findings, the settings first."""
        yield from self._settings()
        folder = self._existing_folder()
        yield from self._disk(folder)
        yield from self._parts()
        yield from self._sizes()
        yield from self._backend(folder)
        yield from self._limits()
        yield from self._clock()
        lacking = list(self._own_account())
        yield from lacking or self._accounts()
        yield from self._name_servers()
        yield from self._addresses()
        yield from self._port()
        yield from self._grpc()

    # --- settings

    def _settings(self) -> Iterator[Finding]:
        from congreve.broker.broker_conf import without_effect
        from congreve.broker.foreign_keys import FOREIGN_KEYS

        misspelled = [(line, key) for line, key in self._unknown if key not in FOREIGN_KEYS]
        for line, key in misspelled:
            place = f" (line {line})" if line else ""
            yield Finding("settings", "warn", without_effect(key) + place, "correct or remove it")
        foreign = ", ".join(key for _, key in self._unknown if key in FOREIGN_KEYS)
        if foreign:
            yield Finding("settings", "ok", f"keys of RocketMQ without effect here: {foreign}")
        elif self._conf is None:
            yield Finding("settings", "ok", "those of a broker without a broker.conf: -c names one")
        elif not misspelled:
            yield Finding("settings", "ok", "every key of the file has an effect")
        if self._config.store.sync_flush:
            yield Finding("flush policy", "ok", "SYNC_FLUSH: acknowledged messages are on disk")
        else:
            yield Finding(
                "flush policy",
                "warn",
                "ASYNC_FLUSH: a power cut loses messages that were acknowledged",
                "set flushDiskType=SYNC_FLUSH unless that is intended",
            )

    # --- disk

    def _existing_folder(self) -> Path:
        folder = self._root.absolute()
        while not folder.is_dir():
            folder = folder.parent
        return folder

    def _disk(self, folder: Path) -> Iterator[Finding]:
        from congreve.engine.retention import (
            DISK_SPACE_CLEAN_FORCIBLY_RATIO,
            DISK_SPACE_WARNING_LEVEL_RATIO,
        )
        from congreve.io_backends.disk import check_usable, used_share

        segment = self._config.store.mapped_file_size_commit_log
        try:
            disk = check_usable(str(folder), 2 * segment)
        except CongreveError as error:
            yield Finding("disk", "fail", str(error), "name another folder as storePathRootDir")
            return
        share = used_share(str(folder))
        free = readable_size(disk.free)
        found = f"{disk.file_system} on {disk.device}, {free} free, {share:.0%} in use"
        if share >= DISK_SPACE_WARNING_LEVEL_RATIO:
            yield Finding("disk", "fail", found, "free some: the broker refuses messages")
        elif share >= DISK_SPACE_CLEAN_FORCIBLY_RATIO:
            yield Finding(
                "disk", "warn", found, "free some: messages are deleted before their time"
            )
        else:
            yield Finding("disk", "ok", found)

    def _parts(self) -> Iterator[Finding]:
        from congreve.engine.state.store_folder import StoreFolder

        if not self._root.is_dir():
            return
        inner = self._root / "store"
        if not (self._root / "commitlog").is_dir() and (inner / "commitlog").is_dir():
            found = f"{self._root} is not a store, but {inner} is"
            yield Finding("store", "warn", found, "name that one: what follows is of a new store")
        folder = StoreFolder(self._config.store)
        try:
            folder.check()
            changes = folder.changes()
        except CongreveError as error:
            advice = "name the parts of one store: the broker does not start with these"
            yield Finding("store", "fail", str(error), advice)
            return
        for change in changes:
            yield Finding("store", "warn", change, "restore the store as a whole")

    def _sizes(self) -> Iterator[Finding]:
        from congreve.engine.state.sizes import FileSizes

        sizes = FileSizes.of(self._config.store).settings
        if sizes:
            yield Finding(
                "file sizes",
                "ok",
                ", ".join(f"{key}={size}" for key, size in sizes.items()),
                "a slave, or a RocketMQ broker with this store, needs the same lines",
            )

    def _backend(self, folder: Path) -> Iterator[Finding]:
        from congreve.engine.state.tuned import load_tuned, machine_of
        from congreve.io_backends.backends import refusal as refusal_of

        refusal = refusal_of("uring", str(folder))
        wants = self._config.store.io_backend in ("uring", "auto") and self._config.store.sync_flush
        if refusal is None:
            yield Finding("io_uring", "ok", "a write through io_uring works")
        else:
            yield Finding(
                "io_uring", "warn" if wants else "ok", refusal, "docs/tuning.md says how" * wants
            )
        tuned = load_tuned(str(self._root)) if self._root.is_dir() else None
        advice = f"run `congreve tune {self._root}`"
        if tuned is None or tuned.machine is None:
            yield Finding("disk choice", "warn", "the disk was not measured", advice)
        elif changes := tuned.machine.differences(machine_of(str(folder))):
            yield Finding("disk choice", "warn", ", ".join(changes), advice)
        else:
            yield Finding("disk choice", "ok", f"{tuned.io_backend}, {tuned.rounds} rounds")

    def _grpc(self) -> Iterator[Finding]:
        from congreve.remoting.http2.built import http2_refusal

        refusal = http2_refusal()
        if refusal is None:
            yield Finding("HTTP/2", "ok", "this build has it: gRPC clients can be served")
        else:
            wants = self._config.grpc_port >= 0
            advice = "install libnghttp2-dev and build again, or remove grpcPort" * wants
            yield Finding("HTTP/2", "fail" if wants else "ok", refusal, advice)

    # --- limits of the system

    def _limits(self) -> Iterator[Finding]:
        files = self._limit(resource.RLIMIT_NOFILE)[1]
        yield _least(
            "open files", files, LEAST_FILES, f"raise the hard limit: ulimit -Hn {LEAST_FILES}"
        )
        memory = self._limit(resource.RLIMIT_MEMLOCK)[0]
        store = self._config.store
        wanted = (
            store.transient_store_pool_size * store.mapped_file_size_commit_log
            if store.io_backend == "pool" and store.transient_store_pool_locked
            else URING_WINDOW
        )
        if memory == resource.RLIM_INFINITY or memory >= wanted:
            yield Finding("locked memory", "ok", _amount(memory))
        else:
            yield Finding(
                "locked memory",
                "fail" if store.io_backend == "pool" else "warn",
                f"{_amount(memory)}; the backend locks {readable_size(wanted)}",
                "raise it: ulimit -l, or LimitMEMLOCK= of the unit",
            )
        mappings = self._number("vm/max_map_count")
        if mappings is not None:
            advice = f"sysctl vm.max_map_count={LEAST_MAPPINGS}"
            yield _least("mapped files", mappings, LEAST_MAPPINGS, advice)
        swappiness = self._number("vm/swappiness")
        if swappiness is not None:
            quiet = swappiness <= MOST_SWAPPINESS
            advice = "sysctl vm.swappiness=1: the system then keeps the broker in memory"
            yield Finding(
                "swapping",
                "ok" if quiet else "warn",
                f"vm.swappiness={swappiness}",
                advice * (not quiet),
            )

    def _number(self, name: str) -> int | None:
        try:
            return int((self._system / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    # --- clock

    def _clock(self) -> Iterator[Finding]:
        state = self._clock_state()
        if state == _TIME_ERROR:
            yield Finding(
                "clock", "warn", "no time service adjusts it", "run chrony or systemd-timesyncd"
            )
        elif state is not None:
            yield Finding("clock", "ok", "a time service adjusts it")
        newest = self._newest_store_time()
        if newest is not None and newest > self._time_ms():
            behind = (newest - self._time_ms()) / 1000
            yield Finding(
                "clock and store",
                "fail",
                f"the clock is {behind:.0f} s behind the newest message of the store",
                "set the clock: delays and retention follow it",
            )

    def _newest_store_time(self) -> int | None:
        from congreve.store_reader import open_store

        try:
            return open_store(self._root).info().last_store_timestamp
        except CongreveError:
            return None

    # --- network

    def _name_servers(self) -> Iterator[Finding]:
        addresses = [part for part in self._config.namesrv_addr.split(";") if part]
        if not addresses:
            yield Finding(
                "name servers",
                "warn",
                "namesrvAddr is not set",
                "set it, or -n of `congreve broker`: clients find brokers there",
            )
        for address in addresses:
            yield from _name_server(address, self._config, self._credentials)

    def _own_account(self) -> Iterator[Finding]:
        """Reads the account with which the broker signs, and these checks after it."""
        from congreve.base.clock import Clock
        from congreve.broker.accounts.files import AccountFiles
        from congreve.remoting.messages.signature import Credentials

        config = self._config
        if not config.acl_enable:
            return
        key = config.broker_access_key
        folder = config.account_folder(self._conf)
        try:
            account = AccountFiles(folder, Clock()).load_for_start().by_key.get(key)
        except CongreveError as error:
            yield Finding("accounts", "fail", str(error), f"correct the files in {folder}")
            return
        if not key:
            return
        if account is None:
            found = f"brokerAccessKey={key} is not an account of the files in {folder}"
            yield Finding("accounts", "fail", found, "name an administrator of these files")
        else:
            self._credentials = Credentials(access_key=key, secret_key=account.secret_key)

    def _accounts(self) -> Iterator[Finding]:
        """Foretells the start of a broker with aclEnable."""
        from congreve.broker.accounts.open_name_servers import CURE, open_name_servers

        config = self._config
        if not config.acl_enable:
            return
        opened = asyncio.run(open_name_servers(config))
        if opened and not config.acl_open_name_servers:
            found = f"the name server {', '.join(opened)} has none: the broker will not start"
            yield Finding("accounts", "fail", found, CURE)
        elif len(opened) < len(config.name_servers) and not config.broker_access_key:
            found = "a name server with accounts refuses this broker's registration"
            advice = "name an administrator as brokerAccessKey"
            yield Finding("accounts", "warn", found, advice)
        else:
            yield Finding("accounts", "ok", "clients need accounts")

    def _addresses(self) -> Iterator[Finding]:
        from congreve.broker.reachable import unreachable

        try:
            found = list(unreachable(self._config))
        except CongreveError as error:
            yield Finding("address", "fail", str(error), "correct it: the broker does not start")
            return
        for key, why in found:
            if key != "namesrvAddr":
                advice = f"correct {key}, unless a router passes that address on to this machine"
                yield Finding("address", "warn", f"{key}: {why}", advice)

    def _port(self) -> Iterator[Finding]:
        from congreve.engine.state.lock import is_held

        port = self._config.listen_port
        if port == 0:
            return
        if is_held(str(self._root / "lock")):
            yield Finding("port", "ok", f"a broker is running with this store (port {port})")
            yield from _log(self._config, self._credentials)
            return
        taken = list(self._taken_ports())
        yield from taken or [Finding("port", "ok", f"{port} is free")]

    def _taken_ports(self) -> Iterator[Finding]:
        from congreve.broker.listeners import check_port

        config = self._config
        host = config.bind_address
        needed = [(host, port, key) for key, port in config.client_ports.items()]
        needed += [(host, config.replication.listen_port, "haListenPort")]
        needed += [(config.metrics_address, config.metrics_port, "metricsPort")]
        for address, port, key in needed:
            try:
                if port > 0:
                    check_port(address, port, key)
            except CongreveError as error:
                yield Finding("port", "fail", str(error), f"stop its user, or set {key.split()[0]}")


def _name_server(
    address: str, config: BrokerConfig, credentials: Credentials | None
) -> Iterator[Finding]:
    try:
        info = asyncio.run(_cluster_of(address, credentials))
    except CongreveError as error:
        yield Finding(
            "name servers", "fail", f"{address}: {error}", "start it, or correct namesrvAddr"
        )
        return
    brokers = info.broker_addr_table
    yield Finding("name servers", "ok", f"{address} knows {len(brokers)} brokers")
    if config.is_slave:
        group = brokers.get(config.broker_name)
        master = None if group is None else group.broker_addrs.get(0)
        yield from _master(address, master, config, credentials)
    yield from _lone_topics(address, info, credentials)
    if config.election.ha_mode != "classic" or config.listen_port == 0:
        return  # an election gives the numbers
    named = brokers.get(config.broker_name)
    known = None if named is None else named.broker_addrs.get(config.broker_id)
    if known not in (None, config.address):
        yield Finding(
            "broker name",
            "warn",
            f"{address} knows {known} as number {config.broker_id} of {config.broker_name}, "
            f"and this broker is {config.address}",
            "if both run, give one another brokerName or brokerId: clients find one or the other",
        )
    others = [
        name
        for name, data in brokers.items()
        if name != config.broker_name and config.address in data.broker_addrs.values()
    ]
    if others:
        yield Finding(
            "broker name",
            "warn",
            f"{address} knows {config.address} as {', '.join(others)}, not {config.broker_name}",
            "if another broker announces this address, change brokerIP1 or listenPort of one",
        )


def _master(
    namesrv: str, master: str | None, config: BrokerConfig, credentials: Credentials | None
) -> Iterator[Finding]:
    """Whether a slave can follow its master."""
    if master is None:
        found = f"{namesrv} has no master of {config.broker_name}"
        yield Finding("master", "warn", found, "start it, or correct brokerName")
        return
    key = "mappedFileSizeCommitLog"
    mine = str(config.store.mapped_file_size_commit_log)
    try:
        theirs = asyncio.run(_settings_of(namesrv, master, credentials)).get(key, mine)
    except CongreveError as error:
        yield Finding("master", "warn", f"its file sizes are unknown: {error}", "start it")
        return
    if theirs != mine:
        found = f"{master} has {key}={theirs}, this slave {mine}"
        yield Finding("master", "fail", found, f"set {key}={theirs}, and begin with an empty store")
    else:
        yield Finding("master", "ok", f"{master} has segments of the same size")


def _log(config: BrokerConfig, credentials: Credentials | None) -> Iterator[Finding]:
    """Whether the log of the running broker is damaged, and who can repair it."""
    namesrv = config.namesrv_addr or config.address
    try:
        figures = asyncio.run(_figures_of(namesrv, config.address, credentials))
    except CongreveError as error:
        yield Finding("log", "warn", f"its state is unknown: {error}", "look at the broker's log")
        return
    damaged, repairs = int(figures.get("logDamaged", 0)), figures.get("haRepairs", "none")
    found = f"{damaged} damaged parts; brokers that can repair the log: {repairs}"
    if damaged:
        advice = "its log names them; a slave of this version, or a master, has whole records"
        yield Finding("log", "fail", found, advice)
    else:
        yield Finding("log", "ok", found)


def _lone_topics(
    namesrv: str, info: ClusterInfo, credentials: Credentials | None
) -> Iterator[Finding]:
    """Topics of a cluster with several masters that one of them alone has."""
    for cluster, names in info.cluster_addr_table.items():
        masters = {
            name: data.broker_addrs[0]
            for name in names
            if (data := info.broker_addr_table.get(name)) is not None and 0 in data.broker_addrs
        }
        if len(masters) < 2:
            continue
        try:
            topics = asyncio.run(_topics_of(namesrv, masters, {*names, cluster}, credentials))
        except CongreveError as error:
            found = f"the places of the topics of {cluster} are unknown: {error}"
            yield Finding("topics", "warn", found, "start that broker")
            continue
        places = Counter(topic for found in topics.values() for topic in found)
        lone = sorted(topic for topic, count in places.items() if count == 1)
        if lone:
            shown = ", ".join(lone[:LONE_SHOWN]) + ", ..." * (len(lone) > LONE_SHOWN)
            yield Finding(
                "topics",
                "warn",
                f"{len(lone)} topics of {cluster} are on one of {len(masters)} masters: {shown}",
                "create them on all: their producers stop when that broker does",
            )
        else:
            yield Finding("topics", "ok", f"every topic of {cluster} is on several masters")


def _client(namesrv: str, credentials: Credentials | None) -> AdminClient:
    from congreve.client.admin.client import AdminClient

    return AdminClient(namesrv, timeout_s=NAME_SERVER_TIMEOUT_S, credentials=credentials)


async def _cluster_of(namesrv: str, credentials: Credentials | None) -> ClusterInfo:
    async with _client(namesrv, credentials) as admin:
        return await admin.cluster_info()


async def _topics_of(
    namesrv: str,
    masters: Mapping[str, str],
    own_names: Collection[str],
    credentials: Credentials | None,
) -> dict[str, set[str]]:
    """The users' topics by broker."""
    from congreve.client.admin.reports import BrokerReports

    async with _client(namesrv, credentials) as admin:
        found = {name: await BrokerReports(admin, at).topics() for name, at in masters.items()}
    return {
        name: {each for each, of in topics.items() if kind_of(each, of.perm, own_names) == "normal"}
        for name, topics in found.items()
    }


async def _settings_of(
    namesrv: str, broker: str, credentials: Credentials | None
) -> dict[str, str]:
    from congreve.client.admin.reports import BrokerReports

    async with _client(namesrv, credentials) as admin:
        return await BrokerReports(admin, broker).settings()


async def _figures_of(namesrv: str, broker: str, credentials: Credentials | None) -> dict[str, str]:
    from congreve.client.admin.reports import BrokerReports

    async with _client(namesrv, credentials) as admin:
        return await BrokerReports(admin, broker).runtime()


def _least(check: str, found: int, wanted: int, advice: str) -> Finding:
    enough = found in (resource.RLIM_INFINITY,) or found >= wanted
    return Finding(check, "ok" if enough else "warn", _count(found), "" if enough else advice)


def _count(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else f"{number:,}"


def _amount(size: int) -> str:
    return "unlimited" if size == resource.RLIM_INFINITY else readable_size(size)


def _clock_state() -> int | None:
    """The result of adjtimex(), which changes nothing here; None if the system has none."""
    call = getattr(ctypes.CDLL(None), "adjtimex", None)
    # struct timex with modes 0; it is shorter than this.
    return None if call is None else int(call(ctypes.create_string_buffer(512)))


@click.command(help="Look at this machine, a broker.conf and its name servers; say what to change.")
@click.option(
    "-c",
    "--config",
    "conf",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The broker.conf; without it the defaults are checked.",
)
@click.option("-n", "--namesrv", help="Name servers instead of namesrvAddr: host:port;host:port.")
@click.option("--store", type=click.Path(path_type=Path), help="Instead of storePathRootDir.")
@output_option
def doctor(conf: Path | None, namesrv: str | None, store: Path | None, output: str) -> None:
    """Print a line for each check; exit code 1 if one of them failed."""
    from congreve.broker.broker_conf import load_config

    given = {"namesrvAddr": namesrv, "storePathRootDir": None if store is None else str(store)}
    overrides = {key: value for key, value in given.items() if value is not None}
    findings = list(Doctor(load_config(conf, overrides), conf=conf).findings())
    show([{**asdict(each), "advice": each.advice or None} for each in findings], output)
    if any(finding.state == "fail" for finding in findings):
        raise click.exceptions.Exit(1)
