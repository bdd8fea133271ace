"""What a child made by fork() must not keep of its parent: locks and listening sockets."""

import os
import weakref
from collections.abc import Callable
from types import MethodType
from typing import cast


class _Methods:
    """The method of each object that a child calls, without those of objects that are gone.

    There is one for the process, as Python's own list is, from which nothing can be taken back:
    a callback for each object would stay there after it.
    """

    def __init__(self) -> None:
        # No WeakMethod: that of Python 3.14 may complain while the interpreter ends.
        self._living: weakref.WeakKeyDictionary[object, Callable[[object], None]] = (
            weakref.WeakKeyDictionary()
        )
        self._is_registered = False

    def __len__(self) -> int:
        return len(self._living)

    def add(self, method: Callable[[], None]) -> None:
        if not self._is_registered:
            self._is_registered = True
            os.register_at_fork(after_in_child=self._call)
        bound = cast(MethodType, method)
        self._living[bound.__self__] = bound.__func__

    def _call(self) -> None:
        for owner, method in list(self._living.items()):
            method(owner)


_METHODS = _Methods()


def in_each_child(method: Callable[[], None]) -> None:
    """Call an object's method in each child that fork() makes, for as long as the object lives.

    A child has copies of all descriptors. While it keeps those of a lock or a listening socket,
    neither is free when the parent ends. The method only closes descriptors: the child has none of
    the parent's other threads.
    """
    _METHODS.add(method)
