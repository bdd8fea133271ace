"""How far slaves are, and the epochs of a log (RocketMQ 5: AdminBrokerProcessor)."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.replication.state import ReplicationState, SlaveState
from congreve.engine.store import MessageStore
from congreve.remoting.messages.admin_bodies import (
    EpochEntry,
    EpochEntryCache,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class ReplicationAdminProcessor:
    """Serves `mqadmin haStatus` and `getBrokerEpoch` of RocketMQ 5 (AdminBrokerProcessor there).

    `state` returns what replication does now.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, state: Callable[[], ReplicationState]
    ) -> None:
        self._config = config
        self._store = store
        self._state = state

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.get_ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
        }

    def get_ha_status(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The slaves of a master with their lags, or the master of a slave."""
        state, end = self._state(), self._store.log.max_offset
        if self._config.is_slave:
            following = HAClientRuntimeInfo(
                master_addr=state.master, max_offset=end, activated=bool(state.master)
            )
            body = HARuntimeInfo(ha_client_runtime_info=following)
            return request.reply(ResponseCode.SUCCESS, body=body.encode())
        slaves = [self._slave(each, state) for each in state.slaves]
        body = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(each.in_sync for each in slaves),
            ha_connection_info=slaves,
            lease_millis=0 if state.election is None else state.election.lease_ms,
        )
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _slave(self, slave: SlaveState, state: ReplicationState) -> HAConnectionRuntimeInfo:
        return HAConnectionRuntimeInfo(
            addr=slave.address,
            slave_ack_offset=slave.acknowledged,
            diff=slave.lag_bytes,
            in_sync=state.is_in_sync(slave),
            transfer_from_where=slave.sent,
            broker_id=-1 if slave.member is None else slave.member,
            lag_millis=slave.lag_ms,
        )

    def get_epochs(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The epochs of this broker's log. Raises RefusedError unless an election decides."""
        election = self._state().election
        if election is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "this broker has no epochs: haMode=etcd or haMode=kubernetes gives it some",
            )
        entries = [
            EpochEntry(epoch=number, start_offset=start) for number, start in election.epochs
        ]
        for entry, following in pairwise(entries):
            entry.end_offset = following.start_offset
        body = EpochEntryCache(
            cluster_name=self._config.broker_cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._config.broker_id,
            epoch_list=entries,
            max_offset=self._store.log.max_offset,
        )
        return request.reply(ResponseCode.SUCCESS, body=body.encode())
