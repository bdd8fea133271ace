"""The name of a store's broker."""

from pathlib import Path

import pytest

from congreve.engine.state.broker_name import BrokerNameFile


def test_a_store_keeps_the_name_of_its_last_start(tmp_path: Path) -> None:
    own = str(tmp_path / "congreve")
    file = BrokerNameFile(own)
    assert file.load() is None
    for name in ("broker-a", 'b \u00e9"', 'b \u00e9"'):
        file.keep(name)
        assert BrokerNameFile(own, read_only=True).load() == name


@pytest.mark.parametrize("text", ["", "{}", '{"crc":1,"state":"a"}', '{"crc":0,"state":7}'])
def test_a_damaged_name_is_no_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerName.json").write_text(text)
    assert BrokerNameFile(str(tmp_path), read_only=True).load() is None
