"""``congreve doctor``: what it finds on good and bad machines."""

import json
import resource
import shutil
import socket
from pathlib import Path

import pytest

from congreve import Broker, Message, NameServer
from congreve.broker.broker_conf import load_config
from congreve.broker.config import VIP_DISTANCE
from congreve.broker.errors import BrokerError, ConfigError
from congreve.client.admin.sync import SyncAdminClient
from congreve.console.doctor import LEAST_FILES, LEAST_MAPPINGS, Doctor, Finding
from congreve.engine.scrub.damage import Damage
from congreve.engine.state.tuned import Machine, Tuned, machine_of, save_tuned
from congreve.name_server import name_server
from congreve.node import serve
from congreve.remoting.messages.bodies import TopicConfig
from tests.console.conftest import congreve
from tests.harness.servers import free_port

UNLIMITED = resource.RLIM_INFINITY


def doctor_of(tmp_path: Path, conf: str = "", **options: object) -> dict[str, Finding]:
    """The findings by check, on a machine without limits."""
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\n{conf}")
    system = tmp_path / "sys"
    (system / "vm").mkdir(parents=True, exist_ok=True)
    (system / "vm" / "max_map_count").write_text(f"{options.pop('mappings', LEAST_MAPPINGS)}\n")
    (system / "vm" / "swappiness").write_text(f"{options.pop('swappiness', 1)}\n")
    limits = {"limit": lambda _: (UNLIMITED, UNLIMITED), "clock_state": lambda: 0, **options}
    doctor = Doctor(load_config(path), conf=path, system=system, **limits)  # type: ignore[arg-type]
    return {finding.check: finding for finding in doctor.findings()}


def states(findings: dict[str, Finding], *checks: str) -> list[str]:
    return [findings[check].state for check in checks]


def test_a_good_machine_passes_all_checks(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    measured = Tuned(
        io_backend="mmap",
        flush_disk_type="SYNC_FLUSH",
        reason="x",
        machine=machine_of(str(tmp_path / "store")),
    )
    save_tuned(str(tmp_path / "store"), measured)
    findings = doctor_of(tmp_path, "flushDiskType=SYNC_FLUSH\n")
    checks = ("settings", "flush policy", "disk", "disk choice", "open files", "locked memory")
    assert set(states(findings, *checks, "mapped files", "swapping", "clock")) == {"ok"}
    assert findings["name servers"].state == "warn"


def test_small_limits_have_advice(tmp_path: Path) -> None:
    findings = doctor_of(
        tmp_path,
        "ioBackend=pool\nnoSuchKey=1\nflushDiskType=ASYNC_FLUSH\n",
        limit=lambda _: (1 << 20, 1024),
        mappings=1000,
        swappiness=60,
        clock_state=lambda: 5,
    )
    checks = ("settings", "flush policy", "open files", "mapped files", "swapping", "clock")
    assert set(states(findings, *checks)) == {"warn"}
    assert findings["locked memory"].state == "fail"
    assert findings["settings"].found == "noSuchKey is not a setting (line 4)"
    assert str(LEAST_FILES) in findings["open files"].advice


def test_another_kernel_than_the_measured_one_is_reported(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    machine = Machine(kernel="1.0", device="/dev/x", mount="/", file_system="ext4")
    tuned = Tuned(io_backend="mmap", flush_disk_type="SYNC_FLUSH", reason="x", machine=machine)
    save_tuned(str(tmp_path / "store"), tuned)
    finding = doctor_of(tmp_path)["disk choice"]
    assert finding.state == "warn"
    assert "the kernel was 1.0" in finding.found and "congreve tune" in finding.advice


def test_a_clock_behind_the_store_is_reported(tmp_path: Path) -> None:
    with serve(tmp_path) as node, node.producer("g") as producer:
        producer.send(Message(topic="orders", body=b"hello"))
    conf = f"storePathRootDir={tmp_path}/store\n"
    assert "clock and store" not in doctor_of(tmp_path, conf)
    late = doctor_of(tmp_path, conf, time_ms=lambda: 1_000_000)
    assert late["clock and store"].state == "fail"


def test_sizes_that_a_slave_and_rocketmq_need_are_named(tmp_path: Path) -> None:
    assert "file sizes" not in doctor_of(tmp_path)
    with serve(tmp_path):
        pass
    finding = doctor_of(tmp_path)["file sizes"]
    assert "mappedFileSizeCommitLog=33554432" in finding.found
    for arguments in (("info",), ("verify",), ("backup", str(tmp_path / "new"))):
        outer = congreve("store", *arguments, str(tmp_path))
        assert outer.returncode == 1 and f"did you mean {tmp_path}/store?" in outer.stderr
    outer = congreve("doctor", "--store", str(tmp_path))
    assert f"{tmp_path} is not a store, but {tmp_path}/store is" in outer.stdout
    info = congreve("store", "info", str(tmp_path / "store"))
    assert set(finding.found.split(", ")) <= set(info.stdout.splitlines())


def test_a_log_that_is_not_this_stores_is_foretold(tmp_path: Path) -> None:
    with serve(tmp_path / "first") as node, node.producer("p") as producer:
        producer.send(Message(topic="T", body=b"x"))
    log = tmp_path / "first" / "store" / "commitlog"
    shutil.copytree(log.parent, tmp_path / "store")
    assert "store" not in doctor_of(tmp_path)
    finding = doctor_of(tmp_path, f"storePathCommitLog={log}\n")["store"]
    assert finding.state == "fail"
    assert f"{log} is a part of the store in {log.parent}, not of {tmp_path}/store" in finding.found
    finding = doctor_of(tmp_path, f"storePathCommitLog={tmp_path}/new\n")["store"]
    assert f"{tmp_path}/new holds no log, but" in finding.found


def test_offsets_of_another_moment_are_foretold(tmp_path: Path) -> None:
    with serve(tmp_path) as node, node.producer("p") as producer:
        producer.send(Message(topic="T", body=b"x"))
    assert "store" not in doctor_of(tmp_path)
    (tmp_path / "store/config/consumerOffset.json").write_text('{"offsetTable":{}}')
    finding = doctor_of(tmp_path)["store"]
    assert finding.state == "warn"
    assert "consumerOffset.json is not what the last clean stop left" in finding.found
    verified = congreve("store", "verify", str(tmp_path / "store"))
    assert f"changed: {finding.found}" in verified.stdout


def test_a_port_in_use_and_an_unreachable_name_server_are_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        conf = f"listenPort={port}\nbindAddress=127.0.0.1\nnamesrvAddr=127.0.0.1:1\n"
        findings = doctor_of(tmp_path, conf)
    assert findings["port"].state == "fail" and str(port) in findings["port"].found
    assert findings["name servers"].state == "fail"


@pytest.mark.parametrize("key", ["listenPort", "haListenPort", "grpcPort", "metricsPort"])
def test_a_port_in_use_that_keeps_a_broker_from_starting_is_foretold(
    tmp_path: Path, key: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        setting = port + VIP_DISTANCE if key == "listenPort" else port
        usual = "brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={}\n"
        listen = setting if key == "listenPort" else free_port()
        conf = usual.format(listen) + (f"{key}={setting}\n" if key != "listenPort" else "")
        finding = doctor_of(tmp_path, conf)["port"]
        with pytest.raises(BrokerError) as refused:
            Broker.from_conf(tmp_path / "broker.conf").__enter__()
    shown = "listenPort - 2" if key == "listenPort" else key
    assert finding.state == "fail" and f"({shown})" in finding.found
    assert f"127.0.0.1:{port}" in str(refused.value)
    assert finding.advice == f"stop its user, or set {key}"


def test_another_broker_with_this_name_and_another_name_of_this_broker_are_reported(
    tmp_path: Path,
) -> None:
    with serve(tmp_path / "other", brokerName="mine") as node:
        address, port = node.broker.address, node.broker.port
        conf = f"namesrvAddr={node.address}\nbrokerIP1=127.0.0.1\n"
        conf += "listenPort={}\nbrokerName={}\n"
        assert "broker name" not in doctor_of(tmp_path, conf.format(port, "mine"))
        assert "broker name" not in doctor_of(tmp_path, conf.format(port + 50, "another"))
        taken = doctor_of(tmp_path, conf.format(port + 50, "mine"))["broker name"]
        assert taken.state == "warn" and address in taken.found
        renamed = doctor_of(tmp_path, conf.format(port, "new-name"))["broker name"]
        assert renamed.state == "warn" and "as mine, not new-name" in renamed.found


def test_the_start_of_rocketmqs_own_accounts_is_foretold(tmp_path: Path) -> None:
    none = doctor_of(tmp_path, "aclEnable=true\n")["accounts"]
    with pytest.raises(ConfigError) as refused, Broker.from_conf(tmp_path / "broker.conf"):
        pass
    assert (none.state, none.found) == ("fail", str(refused.value))
    (tmp_path / "plain_acl.yml").write_text(
        "accounts:\n  - {accessKey: RocketMQ, secretKey: 12345678}\n"
    )
    with NameServer(host="127.0.0.1", port=0) as name_server:
        conf = f"aclEnable=true\nnamesrvAddr={name_server.address}\n"
        finding = doctor_of(tmp_path, conf)["accounts"]
        assert finding.state == "fail" and "the broker will not start" in finding.found
        assert "aclOpenNameServers=true" in finding.advice
        trusted = doctor_of(tmp_path, conf + "aclOpenNameServers=true\n")["accounts"]
        assert trusted.state == "ok"
    assert "accounts" not in doctor_of(tmp_path)


def test_a_name_server_with_accounts_is_asked_with_those_of_the_broker(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(
        "accounts:\n  - {accessKey: administrator, secretKey: 12345678, admin: true}\n"
    )
    accounts.chmod(0o600)
    with name_server("127.0.0.1", 0, None, acl_folder=tmp_path) as server:
        conf = f"aclEnable=true\nnamesrvAddr={server.address}\n"
        signed = doctor_of(tmp_path, conf + "brokerAccessKey=administrator\n")
        assert states(signed, "name servers", "accounts") == ["ok", "ok"]
        unknown = doctor_of(tmp_path, conf + "brokerAccessKey=reporter\n")
        assert "reporter is not an account" in unknown["accounts"].found
    accounts.write_text("accounts: 7\n")
    broken = doctor_of(tmp_path, "aclEnable=true\nbrokerAccessKey=administrator\n")["accounts"]
    assert broken.state == "fail" and "plain_acl.yml" in broken.found


def test_an_address_of_no_interface_is_reported(tmp_path: Path) -> None:
    assert "address" not in doctor_of(tmp_path, "brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n")
    finding = doctor_of(tmp_path, "brokerIP1=192.0.2.7\n")["address"]
    assert finding.state == "warn" and "192.0.2.7" in finding.found
    assert finding.advice.startswith("correct brokerIP1, unless a router passes that address on")
    findings = doctor_of(tmp_path, "brokerIP1=nowhere.invalid\n")
    assert findings["address"].state == "fail" and "HTTP/2" in findings


def test_defaults_are_told_apart_from_a_file(tmp_path: Path) -> None:
    assert "every key of the file" in doctor_of(tmp_path)["settings"].found
    run = congreve("doctor", "--store", str(tmp_path), "--output", "json")
    first = json.loads(run.stdout)[0]
    assert (first["check"], first["advice"]) == ("settings", None)
    assert "without a broker.conf" in first["found"]


def test_topics_on_one_of_several_masters_are_named(tmp_path: Path) -> None:
    with serve(tmp_path / "a", brokerName="a") as node:
        path = tmp_path / "b.conf"
        path.write_text(
            f"brokerName=b\nnamesrvAddr={node.address}\nlistenPort=0\nbindAddress=127.0.0.1\n"
            f"brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\nstorePathRootDir={tmp_path}/b\n"
            "mappedFileSizeCommitLog=1048576\n"
        )
        conf = f"namesrvAddr={node.address}\n"
        assert "topics" not in doctor_of(tmp_path, conf)
        with Broker.from_conf(path):
            with SyncAdminClient(node.address) as admin:
                admin.create_topic("everywhere")
            assert doctor_of(tmp_path, conf)["topics"].state == "ok"
            node.broker.managers.metadata.topics.update(TopicConfig(topic_name="lone"))
            finding = doctor_of(tmp_path, conf)["topics"]
    assert finding.state == "warn" and finding.found.endswith("on one of 2 masters: lone")


def test_a_damaged_log_of_a_running_broker_is_found(tmp_path: Path) -> None:
    local = "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n"
    path = tmp_path / "running.conf"
    path.write_text(
        f"storePathRootDir={tmp_path}/store\nlistenPort=0\nscrubBytesPerSecond=0\n{local}"
    )
    with Broker.from_conf(path) as broker:
        conf = f"{local}listenPort={broker.port}\n"
        assert doctor_of(tmp_path, conf)["log"].state == "ok"
        broker.store.scrub.damages.add(Damage(100, 200, "000", None))
        # The broker says its figures of a moment ago.
        looks = (doctor_of(tmp_path, conf)["log"] for _ in range(1_000))
        finding = next(each for each in looks if each.state != "ok")
    assert finding.state == "fail" and finding.found.startswith("1 damaged parts; ")


@pytest.mark.parametrize("failing", [False, True])
def test_the_exit_code_says_whether_a_check_failed(tmp_path: Path, failing: bool) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\n")
    options = ["-n", "127.0.0.1:1"] if failing else []
    run = congreve("doctor", "-c", str(conf), *options, "--output", "json")
    assert run.returncode == (1 if failing else 0), run.stdout
    findings = json.loads(run.stdout)
    assert any(finding["state"] == "fail" for finding in findings) == failing
