"""The part that all requests of a client share."""

from __future__ import annotations

import random
from collections.abc import Sequence

from wholebroker.history import History
from wholebroker.session import Session


class Requests:
    """The requests of one client; only this client creates and deletes its `own_topics`."""

    def __init__(
        self,
        session: Session,
        history: History,
        chance: random.Random,
        name: str,
        own_topics: Sequence[str] = (),
    ) -> None:
        self._session = session
        self._history = history
        self._chance = chance
        self._name = name
        self._own_topics = own_topics
