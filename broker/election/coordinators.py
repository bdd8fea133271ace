"""The coordinator that the settings of a broker choose, and what they need for an election."""

import re
import zlib

from congreve.broker.config import BrokerConfig
from congreve.broker.election.coordinator import Coordinator, CoordinatorError
from congreve.broker.election.etcd import EtcdAccount, EtcdCoordinator
from congreve.broker.election.json_http import JsonHttp
from congreve.broker.election.kubernetes import KubernetesCoordinator
from congreve.broker.election.service_account import ServiceAccount
from congreve.broker.errors import ConfigError
from congreve.remoting.tls.certificates import client_context
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.settings import ClientTls

NAME_MAX = 40
"""Characters of the group's name in that of its Lease."""


def check_member(config: BrokerConfig) -> None:
    """Raises ConfigError for settings of the broker itself that do not fit an election."""
    if config.broker_id < 1:
        raise ConfigError(
            f"haMode={config.election.ha_mode} needs a brokerId from 1 on, another one for each"
            f" member, not {config.broker_id}"
        )
    if config.listen_port == 0 or config.replication.listen_port < 0:
        raise ConfigError(f"haMode={config.election.ha_mode} needs a listenPort and a HA port")


def coordinator_of(config: BrokerConfig) -> Coordinator:
    """The coordinator of the broker's group. Raises ConfigError."""
    timeout_s = config.election.ha_lease_seconds / 3
    try:
        if config.election.ha_mode == "etcd":
            return _etcd(config, timeout_s)
        if config.election.ha_mode == "kubernetes":
            return _kubernetes(config, timeout_s)
    except (TlsError, CoordinatorError) as error:
        raise ConfigError(f"haMode={config.election.ha_mode}: {error}") from error
    raise ConfigError(f"haMode={config.election.ha_mode!r}; use classic, etcd or kubernetes")


def lease_name(cluster: str, group: str) -> str:
    """The name of a group's Lease: a DNS label, another one for each group of each cluster."""
    readable = re.sub(r"[^a-z0-9]+", "-", group.lower())[:NAME_MAX].strip("-")
    return f"congreve-{readable}-{zlib.crc32(f'{cluster}/{group}'.encode()):08x}"


def _etcd(config: BrokerConfig, timeout_s: float) -> EtcdCoordinator:
    endpoints = [
        each.strip() for each in config.election.etcd_endpoints.replace(";", ",").split(",")
    ]
    if not config.election.etcd_endpoints.strip():
        raise ConfigError("haMode=etcd needs etcdEndpoints, such as http://10.0.0.1:2379")
    if bool(config.election.etcd_user) != bool(config.election.etcd_password):
        raise ConfigError("etcdUser and etcdPassword belong together: set both or neither")
    if bool(config.election.etcd_cert_path) != bool(config.election.etcd_key_path):
        raise ConfigError("etcdCertPath and etcdKeyPath belong together: set both or neither")
    tls = ClientTls(
        cert_path=config.election.etcd_cert_path,
        key_path=config.election.etcd_key_path,
        trust_cert_path=config.election.etcd_trust_cert_path,
        check_host_name=True,
    )
    account = (
        EtcdAccount(config.election.etcd_user, config.election.etcd_password)
        if config.election.etcd_user
        else None
    )
    return EtcdCoordinator(
        endpoints,
        config.broker_cluster_name,
        config.broker_name,
        timeout_s=timeout_s,
        tls=client_context(tls) if any(each.startswith("https:") for each in endpoints) else None,
        account=account,
    )


def _kubernetes(config: BrokerConfig, timeout_s: float) -> KubernetesCoordinator:
    account = ServiceAccount(config.election.kubernetes_service_account)
    encrypted = config.election.kubernetes_api.startswith("https:")
    api = JsonHttp(
        config.election.kubernetes_api,
        headers=account.headers,
        tls=account.tls() if encrypted else None,
    )
    return KubernetesCoordinator(
        api,
        config.election.kubernetes_namespace or account.namespace,
        lease_name(config.broker_cluster_name, config.broker_name),
        timeout_s=timeout_s,
    )
