"""The processor of every request code (RocketMQ: BrokerController.registerProcessor)."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.admin.broker import BrokerAdminProcessor
from congreve.broker.admin.consumers import ClientAdminProcessor
from congreve.broker.admin.groups import GroupAdminProcessor
from congreve.broker.admin.replication import ReplicationAdminProcessor
from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.admin.settings import ConfigAdminProcessor
from congreve.broker.admin.topics import TopicAdminProcessor
from congreve.broker.admin.users import account_processors
from congreve.broker.delay.processor import DelayedMessageProcessor
from congreve.broker.error_responses import answer_errors
from congreve.broker.group.assignment_processor import Route
from congreve.broker.group.processors import client_processors
from congreve.broker.managers import Managers
from congreve.broker.pull.query_processor import QueryMessageProcessor
from congreve.broker.registration import HEARD_TIMEOUT_S
from congreve.broker.replication.state import ReplicationState
from congreve.broker.replication.table_copies import TableCopies
from congreve.broker.send.processor import SendMessageProcessor
from congreve.broker.send.reply_processor import ReplyMessageProcessor
from congreve.broker.send.reserved_properties import MayWrite
from congreve.broker.send.send_back_processor import SendBackProcessor
from congreve.broker.serving.message_paths import MessagePaths
from congreve.remoting.transport.dispatcher import Handler

Announced = Callable[[float], Awaitable[None]]
"""Waits, for some seconds at most, until name servers have all topics."""


class Processor(Protocol):
    """Serves some request codes (RocketMQ: NettyRequestProcessor)."""

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""


def all_handlers(
    managers: Managers,
    paths: MessagePaths,
    config_path: Path | None,
    config_changed: Callable[[set[str]], Awaitable[None]],
    announced: Announced,
    route: Route,
    runtime_info: RuntimeInfo,
    access: AccessControl | None,
    replication: Callable[[], ReplicationState],
    copies: TableCopies,
) -> dict[int, Handler]:
    """The handlers of all request codes of one broker, which answer their errors.

    `config_changed` gets the keys of settings that have changed.
    """
    config, store = managers.config, managers.store
    processors: tuple[Processor, ...] = (
        *_message_processors(managers, paths, None if access is None else access.may_write),
        *client_processors(
            config=config,
            metadata=managers.metadata,
            members=managers.members,
            store=store,
            pieces=managers.pieces,
            announced=announced,
            route=route,
            beginning=managers.pops.beginning,
        ),
        *_admin_processors(managers, announced),
        _broker_processor(managers, runtime_info),
        ConfigAdminProcessor(config, config_path, config_changed, managers.clock, store.files),
        *account_processors(config, access),
        ReplicationAdminProcessor(config, store, replication),
        copies,
    )
    return answer_errors(
        {code: handler for each in processors for code, handler in each.handlers().items()}
    )


def _message_processors(
    managers: Managers, paths: MessagePaths, may_write: MayWrite | None
) -> tuple[Processor, ...]:
    config, metadata, store = managers.config, managers.metadata, managers.store
    delayed = DelayedMessageProcessor(
        config=config,
        store=store,
        delayed=managers.delayed,
        group_commit=paths.group_commit,
        pieces=managers.pieces,
    )
    return (
        paths.pulls,
        delayed,
        SendMessageProcessor(
            config=config,
            metadata=metadata,
            store=store,
            group_commit=paths.group_commit,
            transactions=managers.transactions.service,
            clock=managers.clock,
            take_back=delayed.take_back,
            counts=paths.topics.counts_of,
            may_have=managers.lites.topics.may_have,
            may_write=may_write,
        ),
        SendBackProcessor(
            config=config,
            metadata=metadata,
            store=store,
            group_commit=paths.group_commit,
            stats=managers.stats,
        ),
        managers.transactions.processor(paths.group_commit, paths.topics.counts_of),
        ReplyMessageProcessor(
            config=config,
            metadata=metadata,
            clients=managers.members.ids,
            store=store,
            group_commit=paths.group_commit,
            shown=managers.shown,
            clock=managers.clock,
            may_write=may_write,
        ),
        _query_processor(managers, paths),
        *managers.pop_processors(paths.group_commit, paths.pulls.quota),
    )


def _query_processor(managers: Managers, paths: MessagePaths) -> Processor:
    store, archived = managers.store, paths.pulls.archived
    of_log = QueryMessageProcessor(
        store, managers.members.consumers, managers.metadata.filters, managers.pieces
    )
    if archived is None:
        return of_log
    from congreve.broker.pull.archived_queries import ArchivedQueryProcessor

    return ArchivedQueryProcessor(of_log, store, archived)


def _admin_processors(managers: Managers, announced: Announced) -> tuple[Processor, ...]:
    config, metadata, store = managers.config, managers.metadata, managers.store
    topics = TopicAdminProcessor(
        config=config,
        metadata=metadata,
        deletion=managers.topic_deletion,
        store=store,
        stats=managers.stats,
        pieces=managers.pieces,
        announced=lambda: announced(HEARD_TIMEOUT_S),
    )
    return (
        ClientAdminProcessor(
            config=config,
            metadata=metadata,
            members=managers.members,
            store=store,
            pieces=managers.pieces,
            reset_pops=managers.pops.reset,
        ),
        topics,
        GroupAdminProcessor(
            config=config,
            metadata=metadata,
            consumers=managers.members.consumers,
            store=store,
            stats=managers.stats,
            clock=managers.clock,
            pieces=managers.pieces,
            popped=managers.pops.progress,
            delete_topic=topics.delete,
        ),
    )


def _broker_processor(managers: Managers, runtime_info: RuntimeInfo) -> Processor:
    return BrokerAdminProcessor(
        metadata=managers.metadata,
        deletion=managers.topic_deletion,
        store=managers.store,
        stats=managers.stats,
        delay_offsets=managers.delayed.levels.wrapper,
        runtime_info=runtime_info,
        pieces=managers.pieces,
    )
