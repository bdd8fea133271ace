"""Consumers of a topic that was deleted and made again while they were online.

They pull on at the deleted topic's offsets, and would miss the first messages of the new one.
"""

from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.offsets import ConsumerOffsetManager

Place = tuple[str, str, int]
"""A group, a topic and a queue id."""


class FormerReaders:
    """Lets the groups that read a deleted topic begin at the first messages of the next one.

    The deletion removed their offsets. While a group has no new offset of a queue, what its members
    pull or commit there is from before: the broker sends them to the queue's beginning, and commits
    that for them. RocketMQ: a pull beyond the queue's end continues at the end.
    """

    def __init__(self, deleted: DeletedTopics, offsets: ConsumerOffsetManager) -> None:
        self._deleted = deleted
        self._offsets = offsets
        # Sent to the beginning, and not seen there yet. Each has an entry in the table of offsets.
        self._sent: set[Place] = set()
        offsets.refuse(self._is_former_offset)

    def beginning(self, place: Place, offset: int, ends: tuple[int, int]) -> int | None:
        """Where a pull has to begin instead of at `offset`, None if that is right.

        `ends` are the queue's first and next offset.
        """
        group, topic, queue_id = place
        first, stop = max(ends[0], 0), max(ends[1], 0)
        if not self._deleted.was_deleted(topic):
            return None
        if group in self._deleted.readers(topic):
            if self._offsets.query(group, topic, queue_id) < 0:
                self._sent.add(place)
                self._offsets.note(group, topic, queue_id, first)
            if place in self._sent:
                if offset > first:
                    return first
                self._sent.discard(place)
        return first if offset > stop else None

    def _is_former_offset(self, place: Place, offset: int, known: int) -> bool:
        """Whether a client commits an offset of the deleted topic; `known` is the present one."""
        group, topic, _ = place
        if group not in self._deleted.readers(topic):
            return False
        return (known < 0 or place in self._sent) and offset > max(known, 0)
