"""Whole numbers in text."""

_MOST_DIGITS = 19  # of a number of 64 bits


def java_integer(text: str, bits: int = 32) -> int | None:
    """The value that Java's Integer.parseInt reads, Long.parseLong with 64 bits; None if it throws.

    There may be one sign, leading zeros, and decimal digits of any script.
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    digits = digits.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    value = int(digits or "0")
    if text.startswith("-"):
        value = -value
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None
