"""The processors of requests about clients and their groups."""

import os
from collections.abc import Awaitable, Callable

from congreve.broker.config import BrokerConfig
from congreve.broker.group.assignment_processor import (
    QueryAssignmentProcessor,
    Route,
    TopicQueues,
)
from congreve.broker.group.client_processor import ClientManageProcessor
from congreve.broker.group.consumer_processor import ConsumerManageProcessor
from congreve.broker.group.members import Members
from congreve.broker.metadata.metadata import Metadata
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import Pieces


def client_processors(
    *,
    config: BrokerConfig,
    metadata: Metadata,
    members: Members,
    store: MessageStore,
    pieces: Pieces,
    announced: Callable[[float], Awaitable[None]],
    route: Route,
    beginning: Callable[[str, str, int], int | None],
) -> tuple[ClientManageProcessor, ConsumerManageProcessor, QueryAssignmentProcessor]:
    """Those of one broker; `announced` waits until name servers have its topics.

    `beginning` is as in ConsumerManageProcessor.
    """
    return (
        ClientManageProcessor(
            config=config,
            metadata=metadata,
            members=members,
            announced=announced,
            pieces=pieces,
        ),
        ConsumerManageProcessor(
            metadata=metadata,
            members=members,
            store=store,
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            broker_name=config.broker_name,
            pieces=pieces,
            beginning=beginning,
        ),
        QueryAssignmentProcessor(
            config=config,
            metadata=metadata,
            consumers=members.consumers,
            queues=TopicQueues(config, metadata, route),
        ),
    )
