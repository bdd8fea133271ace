"""A backend around another one that does wrong by plan, and writes down what it was given."""

from typing import Self, final

from congreve.io_backends.backend import Backend
from congreve.io_backends.faultplan import FaultPlan, Group

@final
class FaultBackend(Backend):
    """For tests: what it calls durable, and when it fails, is its plan's to say."""

    def __new__(cls, inner: Backend, plan: FaultPlan) -> Self:
        """`inner` keeps the bytes; this one starts and stops it."""
    @property
    def inner(self) -> Backend: ...
    @property
    def plan(self) -> FaultPlan: ...
    @property
    def recorded(self) -> list[Group]:
        """With `plan.record`: all groups in order, each of them ended by a barrier."""
    @property
    def groups(self) -> int:
        """Groups so far."""
    @property
    def creates(self) -> int:
        """Calls of create() so far."""
    def run_groups(self) -> None:
        """The body of the thread; start() runs it."""
    def pass_group(self, upto: int) -> None:
        """One group, with its fault."""
    def written_between(self, start: int, end: int) -> bytes:
        """What was appended there; physical offsets."""
