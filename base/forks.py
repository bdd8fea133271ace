"""What a child made by fork() must not keep of its parent: locks and listening sockets."""

import os
import weakref
from collections.abc import Callable


def in_each_child(method: Callable[[], None]) -> None:
    """Call a bound method in each child that fork() makes, for as long as its object lives.

    A child has copies of all descriptors. While it keeps those of a lock or a listening socket,
    neither is free when the parent ends. The method only closes descriptors: the child has none of
    the parent's other threads. (Python cannot take such a call back: an object should ask once.)
    """
    weak = weakref.WeakMethod(method)

    def call() -> None:
        alive = weak()
        if alive is not None:
            alive()

    os.register_at_fork(after_in_child=call)
