"""Errors of commands: one line without a traceback, exit code 1, or 2 for wrong arguments."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from congreve.console.main import COMMANDS
from tests.console.conftest import Daemon, congreve
from tests.console.test_output import SERVERS, subcommands

ASKING = {
    "send": "-t T -m x",
    "cat": "-t T -e",
    "find": "-t T -k k",
    "topic list": "",
    "topic create": "T",
    "topic permission": "T read-only",
    "topic delete": "T",
    "topic stats": "T",
    "topic route": "T",
    "group list": "",
    "group create": "g",
    "group lag": "g",
    "group members": "g",
    "group reset": "g -t T --first",
    "group delete": "g",
    "dlq groups": "",
    "dlq count": "g",
    "dlq list": "g",
    "dlq resend": "g",
    "timers count": "",
    "timers list": "",
    "timers recall": "djEgVCBhIDEgQUE=",
    "undeliverable list": "",
    "undeliverable resend": "a:0 -t T",
    "cluster status": "",
    "cluster drain": "a",
    "cluster spread": "T",
    "cluster roll": "--restart true",
    "cluster remove": "a",
    "config show": "",
    "config set": "fileReservedTime=48",
    "replicas": "",
    "why": "g",
    "bench": "-t T --seconds 1",
}
"""The verbs that ask name servers, with arguments."""
NOWHERE = "127.0.0.1:1"


def test_the_table_has_every_verb_that_asks_name_servers() -> None:
    found = set()
    for name, (path, _) in COMMANDS.items():
        module, attribute = path.split(":")
        for whole_name, command in subcommands(getattr(import_module(module), attribute), name):
            if any("--context" in each.opts for each in command.params):
                found.add(whole_name)
    assert found - SERVERS == ASKING.keys()


@pytest.mark.parametrize("verb", ASKING)
def test_a_name_server_that_does_not_answer_is_one_line(verb: str) -> None:
    run = congreve(*verb.split(), *ASKING[verb].split(), "-n", NOWHERE)
    (line,) = run.stderr.splitlines()
    assert (run.returncode, run.stdout) == (1, "")
    assert line.startswith("congreve: ") and f"{NOWHERE}: Connection refused" in line
    assert line.count(NOWHERE) == 1


def wrong_inputs(tmp_path: Path) -> Iterator[tuple[str, int, str]]:
    """A command, its exit code, and a part of its line."""
    file = tmp_path / "file"
    file.write_bytes(b"\xff\x00")
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=abc\n")
    for arguments in ("topic stats Tes", "cat -t Tes -e", "find -t Tes -k k", "topic delete Tes"):
        yield arguments, 1, "topic Tes is on no registered broker: did you mean Test?"
    for verb in ("lag", "members", "delete"):
        yield f"group {verb} worker", 1, "knows a group worker: did you mean workers?"
    yield "group reset workers -t Test", 2, "use one of --first, --last and --time"
    yield "cat -t Test -e -q 99", 1, "congreve: topic Test has no queue 99"
    yield "cat -t Locked -e", 1, "congreve: topic Locked has no queue to read"
    yield "config show flushDiskTipe", 1, "did you mean flushDiskType?"
    yield "config show -b b", 1, "there is no master b: the masters are "
    yield "find -i 7F0000010000A79F00000000FFFFFFFF", 1, "an id from a producer needs the --topic"
    yield "election status", 1, "haMode=classic elects no master: name a member's broker.conf"
    yield f"bundle {tmp_path}/no/report.tgz", 1, "report.tgz cannot be written: No such file"
    yield f"store info {tmp_path}", 1, f"{tmp_path} is not a store"
    yield f"store verify {file}", 1, f"{file} is not a store"
    yield f"store restore {tmp_path} {tmp_path}/new", 1, "is no complete backup"
    yield f"doctor -c {conf}", 1, "listenPort='abc': use a whole number"
    yield f"doctor -c {file}", 1, f"cannot read {file}"
    yield f"tune {file} --seconds 1", 1, f"{file} is not a folder"
    yield "settings flushDiskTipe", 1, "did you mean flushDiskType?"
    yield "top --once --url http://127.0.0.1:1", 1, ":1: Connection refused: is a broker running,"


def test_wrong_inputs_are_one_line(tmp_path: Path, namesrv: str) -> None:
    congreve("topic", "create", "Test", namesrv=namesrv)
    congreve("topic", "create", "Locked", namesrv=namesrv)
    congreve("topic", "permission", "Locked", "none", namesrv=namesrv)
    congreve("group", "create", "workers", namesrv=namesrv)
    for arguments, code, part in wrong_inputs(tmp_path):
        run = congreve(*arguments.split(), namesrv=namesrv)
        assert (run.returncode, part in run.stderr) == (code, True), (arguments, run.stderr)
        assert code == 2 or len(run.stderr.splitlines()) == 1, (arguments, run.stderr)


def test_the_address_of_a_broker_is_told_apart(running: Daemon) -> None:
    broker = running.ready.split("broker ")[1].split(",")[0]
    for arguments in ("topic list", "cluster status", "cat -t T -e", "cluster remove a"):
        run = congreve(*arguments.split(), "-n", broker)
        (line,) = run.stderr.splitlines()
        assert run.returncode == 1 and f"{broker} does not know request" in line
        assert "is it a broker?" in line


def test_a_second_removal_says_that_no_name_server_has_the_broker(namesrv: str) -> None:
    run = congreve("cluster", "remove", "gone", "--output", "json", namesrv=namesrv)
    assert (run.returncode, run.stdout) == (0, "[]\n")
    assert "no name server has gone" in run.stderr
