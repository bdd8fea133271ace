"""Types of the values that options take: times and numbers."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import click

from congreve.base.settings import LONG_MAX


class Time(click.ParamType[int]):
    """A time in ms since 1970, or local as 2026-01-31T12:00."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The time in ms since 1970."""
        text = str(value)
        if text.isdecimal() and int(text) <= LONG_MAX:
            return int(text)
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except ValueError:
            self.fail(f"{text}: use ms since 1970, or a time as 2026-01-31T12:00", param, ctx)


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
