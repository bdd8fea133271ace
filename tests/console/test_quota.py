"""The command for quotas."""

import json
from pathlib import Path

from congreve.broker.quota_limits import Kind, Limits
from congreve.broker.quotas.quota_file import Quota, QuotaFile
from tests.console.conftest import congreve


def run(folder: Path, *arguments: str) -> str:
    done = congreve("quota", *arguments, "-f", str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quotas_are_set_listed_and_deleted(tmp_path: Path) -> None:
    run(tmp_path, "set", "topic", "orders", "sendMessages=1000", "sendBytes=5000")
    run(tmp_path, "set", "address", "*", "pullBytes=9")
    assert QuotaFile(str(tmp_path)).load() == [
        Quota(Kind.ADDRESS, "*", Limits(pull_bytes=9)),
        Quota(Kind.TOPIC, "orders", Limits(send_messages=1000, send_bytes=5000)),
    ]
    rows = json.loads(run(tmp_path, "list", "--output", "json"))
    assert [(row["kind"], row["name"]) for row in rows] == [("address", "*"), ("topic", "orders")]
    run(tmp_path, "delete", "topic", "orders")
    assert len(QuotaFile(str(tmp_path)).load()) == 1


def test_an_invalid_quota_is_refused(tmp_path: Path) -> None:
    for arguments in (("address", "host", "sendBytes=1"), ("topic", "T", "sendBits=1")):
        done = congreve("quota", "set", *arguments, "-f", str(tmp_path))
        assert (done.returncode, done.stdout) == (1, "")
        assert "quota" in done.stderr
    assert not (tmp_path / "quotas.yml").exists()
