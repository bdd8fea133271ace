"""``congreve settings``: the reference of broker.conf on the command line."""

import json

from congreve.broker.config import setting_rows
from tests.console.conftest import congreve


def test_every_setting_is_listed_with_its_meaning() -> None:
    found = json.loads(congreve("settings", "--output", "json").stdout)
    assert [row["key"] for row in found] == [row.key for row in setting_rows()]
    assert all(row["meaning"] and "`" not in row["meaning"] for row in found)
    assert congreve("settings").stdout.count("\n") == len(found) + 1


def test_a_key_or_a_part_of_it_is_explained() -> None:
    one = congreve("settings", "flushDiskType").stdout
    assert one.startswith("flushDiskType\n") and "default: SYNC_FLUSH" in one
    for part in ("transientstore", "transientStore*"):
        some = congreve("settings", part).stdout
        assert "transientStorePoolEnable\n" in some and "transientStorePoolSize\n" in some


def test_an_unknown_key_is_an_error_that_names_its_like() -> None:
    run = congreve("settings", "flushDiskTipe")
    assert run.returncode == 1 and "did you mean flushDiskType?" in run.stderr
    foreign = congreve("settings", "useEpollNativeSelector")
    assert "a key of RocketMQ, has no effect here" in foreign.stderr
