"""What all consumers share: a group, hooks (RocketMQ: ClientConfig, ConsumeMessageHook)."""

import time
from collections.abc import Sequence
from typing import Unpack

from congreve.client.checks import check_group, check_type
from congreve.client.hooks import ConsumeHook, ReceiveContext
from congreve.client.message import ReceivedMessage
from congreve.client.namespace import unwrap, wrap
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.options import ConnectionOptions
from congreve.client.user_code import call_after, end_each

DEFAULT_GROUP = "DEFAULT_CONSUMER"
"""The group name that RocketMQ reserves for itself."""


class ConsumerOptions(ConnectionOptions, total=False):
    """Options of every consumer; see GroupClient (RocketMQ: fields of DefaultMQPullConsumer)."""

    timeout_s: float
    hooks: Sequence[ConsumeHook]


class GroupClient(ClientInstance):
    """Base class of the consumers: a client of `group` whose `hooks` see what it reads.

    `connection` holds ClientInstance's options: credentials, ssl, namespace. (RocketMQ:
    DefaultMQPullConsumer.)
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        timeout_s: float = 3.0,
        hooks: Sequence[ConsumeHook] = (),
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        check_group(group, DEFAULT_GROUP)
        check_type("hooks", hooks, Sequence)
        for hook in hooks:
            check_type("hook", hook, ConsumeHook)
        self.hooks = tuple(hooks)
        super().__init__(namesrv, timeout_s=timeout_s, **connection)
        self.group = wrap(self.namespace, group)
        check_group(self.group, DEFAULT_GROUP)

    async def start(self) -> None:
        """Start the hooks and the client; this contacts no name server or broker. Raises
        ClientStateError when it was started before."""
        for hook in self.hooks:
            await hook.start()
        await super().start()

    async def _stop_all(self) -> None:
        try:
            await super()._stop_all()
        finally:
            await end_each(hook.stop for hook in self.hooks)

    def _note_received(self, messages: list[ReceivedMessage], begin: float) -> None:
        """Call the hooks after a pull or poll that began at `begin` of the monotonic clock."""
        if not self.hooks or not messages:
            return
        seconds = time.monotonic() - begin
        context = ReceiveContext(
            group=unwrap(self.namespace, self.group),
            messages=messages,
            began_at=time.time() - seconds,
            seconds=seconds,
        )
        call_after((hook.after_receive for hook in self.hooks), context)
