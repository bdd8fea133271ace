"""How groups read topics, by pulls or pops (RocketMQ 5: MessageRequestModeManager)."""

from collections.abc import Callable

from congreve.base.table_limit import TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.state_writer import MemoryOnly, TableFile
from congreve.broker.metadata.table_text import check_entry
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.pop_bodies import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

Mode = SetMessageRequestModeRequestBody


class MessageRequestModes:
    """The modes that administrators have set, in messageRequestMode.json.

    There is no file before the first one. (RocketMQ 5: MessageRequestModeManager.)
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.table: dict[str, dict[str, Mode]] = {}
        """Topic, then group."""
        self.file: TableFile = MemoryOnly()
        self._limit = TableLimit("maxGroups", "request modes", lambda: config.limits.max_groups)
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at each change from now on."""
        self._listeners.append(listener)

    def find(self, topic: str, group: str) -> Mode | None:
        """The mode of a group for a topic; None: it was never set."""
        return self.table.get(topic, {}).get(group)

    def set(self, mode: Mode) -> None:
        """Set a mode. Raises TableFullError for one more than maxGroups, RefusedError for one that
        the file cannot hold."""
        if self.find(mode.topic, mode.consumer_group) is None:
            self._limit.check(sum(map(len, self.table.values())))
        check_entry(mode.topic, {mode.consumer_group: mode}, _modes_of)
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._changed()

    def drop_topic(self, topic: str) -> None:
        """Forget the modes of a deleted topic."""
        if self.table.pop(topic, None) is not None:
            self._changed()

    def drop_group(self, group: str) -> None:
        """Forget the modes of a deleted group."""
        topics = [topic for topic, groups in self.table.items() if group in groups]
        for topic in topics:
            del self.table[topic][group]
            if not self.table[topic]:
                del self.table[topic]
        if topics:
            self._changed()

    def body(self) -> MessageRequestModeSerializeWrapper:
        """The body of code 402, and what the file holds."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self.table)

    def follow_master(self, theirs: MessageRequestModeSerializeWrapper) -> None:
        """Replace the table by a master's (RocketMQ 5: SlaveSynchronize)."""
        if theirs.message_request_mode_map != self.table:
            self.table = theirs.message_request_mode_map
            self._changed()

    def file_text(self) -> str:
        """Content of messageRequestMode.json."""
        return fastjson.dumps_pretty(self.body())

    def load(self, text: str) -> bool:
        """Take what messageRequestMode.json holds; returns True."""
        tree = fastjson.loads(text)
        self.table = MessageRequestModeSerializeWrapper.from_tree(tree).message_request_mode_map
        return True

    def _changed(self) -> None:
        self.file.changed()
        for listener in self._listeners:
            listener()


def _modes_of(tree: object) -> dict[str, dict[str, Mode]]:
    wrapper = MessageRequestModeSerializeWrapper.from_tree({"messageRequestModeMap": tree})
    return wrapper.message_request_mode_map
