"""A connection that records answers and serves requests of the broker in between."""

from __future__ import annotations

from collections.abc import Callable

from harness.wire import Answer, Wire
from wholebroker.history import History


class Session:
    """One client's connection; calls `serve` with each request of the broker.

    Raises OSError when the broker has ended; a missing answer is recorded in the history.
    """

    def __init__(
        self, address: str, history: History, serve: Callable[[Wire, Answer], None] | None = None
    ) -> None:
        self.wire = Wire(address, timeout_s=30)
        self._history = history
        self._serve = serve

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def call(self, kind: str, code: int, fields: dict[str, str], body: bytes = b"") -> Answer:
        """One request and its answer."""
        return self.calls(kind, code, [(fields, body)])[0]

    def calls(
        self, kind: str, code: int, requests: list[tuple[dict[str, str], bytes]]
    ) -> list[Answer]:
        """Many requests at once, and their answers in the same order."""
        opaques = [self.wire.send(code, fields, body) for fields, body in requests]
        answers: dict[int, Answer] = {}
        while len(answers) < len(opaques):
            frame = self._receive(kind)
            if frame.flag & 1:
                answers[frame.opaque] = frame
            elif self._serve is not None:
                self._serve(self.wire, frame)
        for answer in answers.values():
            self._history.answers[kind, answer.code] += 1
        return [answers[opaque] for opaque in opaques]

    def serve_for(self, seconds: float) -> None:
        """Serve requests of the broker, and send none."""
        self.wire.set_timeout(seconds)
        try:
            while True:
                frame = self.wire.receive()
                if not frame.flag & 1 and self._serve is not None:
                    self._serve(self.wire, frame)
        except TimeoutError:
            self.wire.set_timeout(30)

    def _receive(self, kind: str) -> Answer:
        try:
            return self.wire.receive()
        except TimeoutError:
            self._history.faults.append(f"{kind}: no answer within 30 s")
            raise
