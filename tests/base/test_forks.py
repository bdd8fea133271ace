"""Methods that children of fork() call live no longer than their objects."""

import os

from congreve.base import forks


class Holder:
    """An object with something to close in a child."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        forks.in_each_child(self.close)

    def close(self) -> None:
        os.write(self._pipe, b"x")


def test_a_child_calls_the_methods_of_living_objects_only() -> None:
    before = len(forks._METHODS)
    reader, writer = os.pipe()
    kept, gone = Holder(writer), Holder(writer)
    assert len(forks._METHODS) == before + 2
    del gone
    assert len(forks._METHODS) == before + 1
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    del kept
    assert len(forks._METHODS) == before
