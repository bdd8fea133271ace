"""What the slave of a crossed pair takes from the master of its machine."""

from congreve.broker.config import BrokerConfig, all_settings
from congreve.broker.config_parts import ConsoleConfig, LakeConfig
from congreve.broker.pair import NOT_INHERITED, slave_config
from congreve.broker.processes.console_process import console_process
from congreve.broker.processes.lake_process import lake_process

OF_THE_SLAVE = {"listenPort"}
"""Ports that the slave has with a distance of its own."""


def test_a_slave_has_no_port_and_no_process_of_its_master() -> None:
    master = BrokerConfig(
        pair_address="10.0.0.2",
        namesrv_addr="10.0.0.1:9876",
        metrics_port=5557,
        console=ConsoleConfig(port=8080),
        lake=LakeConfig(topics="orders", warehouse="/tables", retention=True),
    )
    slave = slave_config(master)
    assert console_process(slave) is None and lake_process(slave) is None
    assert (slave.metrics_port, slave.lake.retention, slave.pair_address) == (-1, False, "")
    assert (slave.listen_port, slave.replication.master_address) == (10921, "10.0.0.2:10912")


def test_each_setting_of_a_port_or_a_listener_is_decided() -> None:
    names = all_settings().keys()
    ports = {name for name in names if name.lower().endswith(("port", "listeners"))}
    assert ports == (NOT_INHERITED.keys() & ports) | OF_THE_SLAVE
    assert NOT_INHERITED.keys() <= names
