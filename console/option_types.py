"""Types of the values that options take: times, numbers, pairs."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime
from typing import Any

import click

from congreve.base.settings import LONG_MAX

Pairs = tuple[tuple[str, str], ...]
"""What a command gets from a repeatable option of KeyValue."""
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Time(click.ParamType[int]):
    """A time in ms since 1970, local as 2026-01-31T12:00, or from now as -15m or +2h."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The time in ms since 1970."""
        text = str(value)
        if text.isdecimal() and int(text) <= LONG_MAX:
            return int(text)
        if relative := re.fullmatch(r"([+-][0-9]{1,9})([smhd])", text):
            return int(time.time() * 1000) + int(relative[1]) * _UNITS_MS[relative[2]]
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except ValueError:
            self.fail(f"{text}: use ms since 1970, a time as 2026-01-31T12:00, or -15m", param, ctx)


class FiniteRange(click.FloatRange):
    """A range of numbers without nan, which click takes for one in each range, and infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class KeyValue(click.ParamType[tuple[str, str]]):
    """KEY=VALUE as a pair; blanks around the key are not part of it, unless it `keeps_blanks`."""

    def __init__(self, key: str = "KEY", *, keeps_blanks: bool = False) -> None:
        self.name = f"{key}=VALUE"
        self._keeps_blanks = keeps_blanks

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The key, which is not empty, and the value."""
        key, equals, text = str(value).partition("=")
        if not self._keeps_blanks:
            key = key.strip()
        if not equals or not key:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return key, text
