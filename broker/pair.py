"""A crossed pair: this machine's master, and the slave of the other machine's master.

The other machine has the same with the roles exchanged. When one of them dies, clients continue
with the other's master, and read the dead master's messages from its slave.
"""

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.engine.state.sizes import adopt_sizes

SLAVE_DISTANCE = 10
"""The port of the slave minus listenPort."""
SLAVE_ID = 1
NOT_INHERITED = {
    "pairAddress": "",
    "haListenPort": "-1",
    "metricsPort": "-1",
    "grpcPort": "-1",
    "listeners": "",
    "advertisedListeners": "",
    "answerRouteRequests": "false",
    # The master of this machine has the console, each master the tables of its own topics.
    "consolePort": "0",
    "lakeTopics": "",
    "lakeRetention": "false",
}
"""Settings of a master that its machine's slave must not have: ports, and processes of its own."""


def pair_broker_name(host: str, port: int) -> str:
    """The name of the master at this address, which both machines of a pair derive alike."""
    return f"broker-{host}-{port}".replace(":", "_").replace(".", "_")


def pair_master(config: BrokerConfig) -> tuple[str, int]:
    """Host and port of pairAddress; the port is listenPort unless the address has one.

    Raises ConfigError for an address that has neither.
    """
    host, colon, port = config.pair_address.rpartition(":")
    if not colon:
        return port, config.listen_port
    if not host or not port.isdecimal():
        raise ConfigError(f"pairAddress={config.pair_address!r}: write host, or host:port")
    return host, int(port)


def paired_slave(config: BrokerConfig) -> Broker | None:
    """The slave of the master at pairAddress, not started; None without a pairAddress.

    It has the settings of this machine's master, but a store beside that master's, with `-slave`
    at the end of its name, and the port listenPort + 10. Raises ConfigError for a pairAddress that
    cannot be used. (RocketMQ 5: BrokerContainer.)
    """
    if not config.pair_address:
        return None
    if config.is_slave or config.election.ha_mode != "classic":
        raise ConfigError(
            "pairAddress is a setting of a master with haMode=classic: the pair's slave starts with"
            " it"
        )
    slave = slave_config(config)
    adopt_sizes(slave.store, ())
    return Broker(slave)


def slave_config(config: BrokerConfig) -> BrokerConfig:
    """The settings of the slave beside a master with these settings.

    Raises ConfigError for a pairAddress that cannot be used.
    """
    host, port = pair_master(config)
    own = {
        "storePathRootDir": config.store.root_dir.rstrip("/") + "-slave",
        "brokerRole": "SLAVE",
        "brokerId": str(SLAVE_ID),
        "brokerName": config.pair_broker_name or pair_broker_name(host, port),
        "listenPort": str(config.listen_port + SLAVE_DISTANCE if config.listen_port else 0),
        "haMasterAddress": f"{host}:{port + 1}",
        # Consumers read the messages of a dead master here.
        "slaveReadEnable": "true",
    }
    return config.changed(NOT_INHERITED | own)
