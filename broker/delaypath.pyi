from typing import final

from congreve.engine.store import MessageStore

@final
class DelayPath:
    """The compiled part of parking, for the hot path: one level, or one time, in plain digits.

    It knows the ordinary case only; whatever is odd about a wish (a level of 0, a time that has
    passed or is too far, two wishes at once) is left to congreve.broker.delay.
    """

    def __init__(self, store: MessageStore, cluster: str) -> None:
        """`cluster` is stored with each message, as with those that do not wait."""
    def config_changed(self) -> None:
        """Follow timerWheelEnable, timerMaxDelaySec and timerRollWindowSlot; levels are fixed."""
