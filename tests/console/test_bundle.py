"""``congreve bundle``: what a bug report needs, without secrets."""

import json
import stat
import tarfile
from pathlib import Path

import pytest

from congreve.console.bundle import without_secrets
from tests.console.conftest import congreve


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("brokerSecretKey=abc def", "brokerSecretKey=(blanked)"),
        ("tls.client.keyPassword = hidden", "tls.client.keyPassword = (blanked)"),
        ('{"secretKey": "a b", "x": 1}', '{"secretKey": "(blanked)", "x": 1}'),
        ("- accessKey: someone", "- accessKey: (blanked)"),
        ("haEtcd=http://user:word@host:1", "haEtcd=http://(blanked)@host:1"),
        ("Authorization: Bearer abc", "Authorization: (blanked)"),
        ("etcdPassword=a;b,c d}e", "etcdPassword=(blanked)"),
        ("# etcdPassword=a b c", "# etcdPassword=(blanked)"),
        ("1 refused secretKey=a,b;c and", "1 refused secretKey=(blanked)"),
        (r'{"token": "a\"b", "x": 1}', '{"token": "(blanked)", "x": 1}'),
        ("https://user:w@rd/x@host:1/x", "https://(blanked)@host:1/x"),
        ("https://word@host:1/x", "https://(blanked)@host:1/x"),
        ("http://127.0.0.1:1/x", "http://127.0.0.1:1/x"),
        ("apiKey=abc, passphrase=d", "apiKey=(blanked)"),
        (
            "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n1",
            "-----BEGIN PRIVATE KEY-----(blanked)-----END PRIVATE KEY-----\n1",
        ),
        ("listenPort=10911", "listenPort=10911"),
    ],
)
def test_secrets_are_blanked(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_bundle_has_settings_versions_logs_store_and_figures(
    tmp_path: Path, data: Path, namesrv: str
) -> None:
    secret = "a-secret-that-nobody-may-see"
    conf, log = tmp_path / "broker.conf", tmp_path / "broker.log"
    conf.write_text(
        f"storePathRootDir={data / 'store'}\nbrokerAccessKey=administrator\n"
        f"brokerSecretKey={secret}\nfileReservedTime=48\n"
    )
    log.write_text(f"line one\nrefused secretKey={secret}\nlogin with {secret}\n")
    target = tmp_path / "report.tar.gz"
    options = ("-c", str(conf), "--log", str(log), "-n", namesrv)
    made = congreve("bundle", str(target), *options, "--output", "json")
    assert made.returncode == 0, made.stderr
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        texts = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None
            texts[entry.name.removeprefix("report/")] = file.read().decode()
    assert sorted(texts) == sorted(json.loads(made.stdout)[0]["files"])
    assert not any(secret in text for text in texts.values())
    settings = json.loads(texts["settings.json"])
    assert (settings["fileReservedTime"], settings["brokerAccessKey"]) == ("48", "(blanked)")
    assert json.loads(texts["versions.json"])["python"]
    assert json.loads(texts["store.json"])["segments"] >= 1
    assert json.loads(texts["disks.json"])[0]["bytes"] > 0
    (broker,) = json.loads(texts["cluster.json"]).values()
    assert broker["runtime"]["brokerVersionDesc"] and broker["settings"]["fileReservedTime"]
    assert "line one" in texts["log-1-broker.log"]
    again = congreve("bundle", str(target))
    assert (again.returncode, "exists" in again.stderr) == (1, True)


def test_what_cannot_be_read_does_not_end_the_bundle(tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    made = congreve("bundle", str(target), "--store", str(tmp_path), "-n", "127.0.0.1:1")
    assert made.returncode == 0, made.stderr
    with tarfile.open(target) as archive:
        assert {"report/store.json", "report/cluster.json"} <= set(archive.getnames())
