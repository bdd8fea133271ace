"""Lines of ``key=value``, as tls.properties and the name server's settings have them."""

from collections.abc import Mapping


def parse_properties(text: str) -> dict[str, str]:
    """Read ``key=value`` lines; blank lines and comments are skipped."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def format_properties(texts: Mapping[str, str]) -> str:
    """The lines of parse_properties(), sorted by key."""
    return "".join(f"{key}={texts[key]}\n" for key in sorted(texts))
