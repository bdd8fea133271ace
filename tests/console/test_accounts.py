"""The commands for accounts, and the audit log of a daemon."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from harness import servers

from congreve.base.clock import Clock
from congreve.broker.accounts.accounts import Account, Kind, Need, Perm
from congreve.broker.accounts.files import AccountFiles
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.transport.client import RemotingClient
from tests.console.conftest import Daemon, congreve


def run(folder: Path, *arguments: str, stdin: str = "") -> str:
    done = congreve(*arguments, "-f", str(folder), stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def account(folder: Path, key: str) -> Account:
    return AccountFiles(str(folder), Clock()).load().by_key[key]


def test_an_account_is_created_changed_and_deleted(tmp_path: Path) -> None:
    secret = run(tmp_path, "user", "add", "administrator", "--admin")
    assert len(secret) == 32
    assert run(tmp_path, "user", "add", "service", "--secret-stdin", stdin="its-secret\n") == ""
    path = tmp_path / "plain_acl.yml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert account(tmp_path, "administrator").secret_key == secret
    assert account(tmp_path, "service").secret_key == "its-secret"
    run(tmp_path, "acl", "set", "service", "-t", "orders=PUB|SUB", "-t", "logs=PUB")
    run(tmp_path, "acl", "set", "service", "-t", "logs=DENY", "-g", "g=SUB", "--default-topic=SUB")
    found = account(tmp_path, "service")
    assert found.topics == {"orders": Perm.PUB | Perm.SUB, "logs": Perm.DENY}
    assert found.lacks([Need(Kind.TOPIC, "others", Perm.SUB)]) is None
    assert account(tmp_path, "administrator").may_do_all
    rows = json.loads(run(tmp_path, "acl", "show", "service", "--output", "json"))
    assert {"kind": "topic", "name": "logs", "permission": "DENY"} in rows
    listed = run(tmp_path, "user", "list", "--output", "json")
    assert [each["access_key"] for each in json.loads(listed)] == ["administrator", "service"]
    assert secret not in listed
    run(tmp_path, "user", "delete", "service")
    assert "service" not in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("user", "add", "short"), "fewer than 7 characters"),
        (("user", "add", "existing"), "already"),
        (("user", "delete", "unknown-key"), "no account"),
        (("acl", "show", "unknown-key"), "no account"),
        (("acl", "set", "existing", "-t", "T=WRITE"), "not a permission"),
    ],
)
def test_invalid_accounts_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    run(tmp_path, "user", "add", "existing")
    before = (tmp_path / "plain_acl.yml").read_text()
    done = congreve(*arguments, "-f", str(tmp_path))
    assert done.returncode == 1
    assert error in done.stderr
    assert (tmp_path / "plain_acl.yml").read_text() == before


async def _ask_often(address: str, secret: str, count: int) -> None:
    sign = Credentials(access_key="administrator", secret_key=secret).sign
    client = RemotingClient(before_request=sign)
    for _ in range(count):
        answer = await client.invoke(address, RemotingCommand(code=26))
        assert answer.code == 0
    await client.close()


def test_a_daemon_writes_every_line_of_the_audit_log(tmp_path: Path) -> None:
    secret = run(tmp_path, "user", "add", "administrator", "--admin")
    port = servers.free_port()
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"aclEnable=true\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={port}\n"
        f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=16777216\n"
    )
    daemon = Daemon("broker", "-c", str(conf))
    asyncio.run(_ask_often(f"127.0.0.1:{port}", secret, 30))
    daemon.process.terminate()
    _, log = daemon.process.communicate(timeout=60)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line["request"] for line in lines] == ["GET_BROKER_CONFIG"] * 30
    assert {(line["accessKey"], line["code"]) for line in lines} == {("administrator", 0)}
