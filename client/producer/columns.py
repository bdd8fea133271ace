"""Reads message bodies out of Arrow and numpy arrays as one buffer with offsets. This module
imports neither library."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from congreve.client.errors import InvalidMessageError


class ArrowArray(Protocol):
    """An Arrow array, of any library."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Export the array."""


class ArrowChunks(Protocol):
    """An Arrow array in chunks, of any library."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the chunks."""


Bodies = Iterable[bytes | bytearray | memoryview] | ArrowArray | ArrowChunks
"""Bodies of messages; a numpy array counts as an iterable."""

PIECE = 4096
"""Number of bodies taken at a time from an iterable that is neither a list nor an array."""

Column = tuple[Any, Any]
"""A buffer and n + 1 offsets (int64) into it, which bound n bodies."""


def pieces(bodies: Any) -> Iterator[list[Any] | Column]:
    """Yield lists and columns that hold all bodies in order.

    Raises InvalidMessageError when `bodies` has a type or a shape that cannot hold bodies.
    """
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if isinstance(bodies, list):
        yield bodies
    elif numpy is not None and isinstance(bodies, numpy.ndarray):
        yield _of_numpy(numpy, bodies)
    elif arrow is not None and isinstance(bodies, arrow.ChunkedArray):
        yield from (_of_arrow(arrow, chunk) for chunk in bodies.chunks)
    elif arrow is not None and isinstance(bodies, arrow.Array):
        yield _of_arrow(arrow, bodies)
    elif isinstance(bodies, Iterable) and not isinstance(bodies, bytes | bytearray | str | dict):
        rest = iter(bodies)
        while piece := list(islice(rest, PIECE)):
            yield piece
    else:
        raise _unfit(bodies, "an iterable of bytes, an Arrow or a numpy array is expected")


def _of_numpy(numpy: Any, array: Any) -> list[Any] | Column:
    if array.ndim == 1 and array.dtype.kind in "SO":
        bodies: list[Any] = array.tolist()
        return bodies
    if array.ndim != 2 or array.dtype != numpy.uint8:
        raise _unfit(
            array,
            f"{array.ndim} dimensions of {array.dtype}: use type S, or two dimensions of uint8",
        )
    rows, width = array.shape
    data = numpy.ascontiguousarray(array).reshape(-1)
    return data, numpy.arange(rows + 1, dtype=numpy.int64) * width


def _of_arrow(arrow: Any, array: Any) -> Column:
    import numpy

    if array.null_count:
        raise _unfit(array, f"{array.null_count} of the bodies are null")
    kind, first, last = array.type, array.offset, array.offset + len(array)
    if arrow.types.is_fixed_size_binary(kind):
        offsets = numpy.arange(first, last + 1, dtype=numpy.int64) * kind.byte_width
    elif arrow.types.is_binary(kind) or arrow.types.is_string(kind):
        offsets = _offsets(numpy, array, numpy.int32)[first : last + 1].astype(numpy.int64)
    elif arrow.types.is_large_binary(kind) or arrow.types.is_large_string(kind):
        offsets = _offsets(numpy, array, numpy.int64)[first : last + 1]
    else:
        raise _unfit(array, f"the type is {kind}: use binary or string")
    return array.buffers()[-1] or b"", offsets


def _offsets(numpy: Any, array: Any, kind: Any) -> Any:
    buffer = array.buffers()[1]
    return numpy.zeros(1, kind) if buffer is None else numpy.frombuffer(buffer, kind)


def _unfit(bodies: Any, why: str) -> InvalidMessageError:
    return InvalidMessageError(f"bodies in a {type(bodies).__name__}: {why}")
