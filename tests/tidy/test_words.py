"""Phrases that are not plain technical English do not come back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import text_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
FOLDERS = sorted({*PACKAGES.values(), "bench", "deploy", "docs", "examples", "tests"})
SOURCES = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".java", ".go", ".js", ".css", ".html"}
SUFFIXES = SOURCES | {".md", ".toml", ".yml", ".yaml", ".service", ".sh"}

#: A phrase, and what to write instead.
PHRASES = {
    r"\bwhoever\b": "name the caller, client or thread",
    r"\bwho (?:waits|asked|asks|sends|reads|listens|has gone)\b": "name the caller or client",
    r"\b(?:is|are|was|were|be) told so\b": "gets an error, is notified",
    r"\b(?:is|are|was|were) (?:told|said) (?:apart|once|by)\b": "is distinguished, is logged",
    r"\b(?:gives?|gave|give) way\b": "is evicted, is replaced",
    r"\blast words\b": "name the message or the log line",
    r"\bby plan\b": "planned, injected",
    r"\bin vain\b": "was refused, failed",
    r"\bstands? still\b": "is blocked, is stopped",
    r"\b(?:lest|thereof|wherein)\b": "so that … not, of it, in which",
    r"\bhears? of\b": "learns of, is notified of",
    r"\btold of\b": "reported, was notified of",
    r"\banew\b": "again",
    r"\bat hand\b": "current, buffered, loaded",
    r"\bwhere there (?:is|are) none\b": "if there is none",
    r"\bholds? (?:the two|them) equal\b": "compares the two",
    r"\b(?:some|any|every)body\b": "name the caller, client or thread",
    r"\bnobody (?!here\b)[a-z]+\b": "no client, no thread",
    r"\bof the moment\b": "current, at that time",
    r"\b(?:ha[sd]|have) no more\b": "no longer has",
    r"\bfor ever\b": "until it is cancelled, permanently",
    r"\bgo(?:es)? on (?:in|without|at|with|from|until)\b": "continues",
    r"\bkn[eo]ws? no\b": "has no, does not support",
    r"\bsigns? of life\b": "heartbeat, keep-alive",
    r"\bmends?\b": "repairs",
    r"\bspoil(?:s|t|ed)?\b": "damages",
    r"\bmoody\b": "failing, faulty",
    r"(?<!there )\b(?:is|are|was|were) no (?:address|frame|list|logger|mapping|message"
    r"|multiple|number|page|pattern|permission|quota|record)s?\b": "is not a …",
}
# Before a phrase is searched: its longest part that each match has, in small letters.
OPTIONAL = re.compile(r"\((?:[^()]|\([^()]*\))*\)\??|\[[^]]*\][+?]?|\\b|.\?")
FOUND = {
    re.compile(phrase, re.IGNORECASE): (max(OPTIONAL.split(phrase), key=len), instead)
    for phrase, instead in PHRASES.items()
}


def texts() -> Iterator[Path]:
    """Sources and pages, relative to the root."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__):
                yield path.relative_to(ROOT)
    yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob("*.md")))


def phrases_in(text: str) -> list[str]:
    small = text.lower()
    return [
        f"{found[0]!r}: {instead}"
        for bad, (part, instead) in FOUND.items()
        if part in small and (found := bad.search(text))
    ]


def test_no_text_has_a_phrase_of_the_list() -> None:
    wrong = [
        f"{name}:{number}: {phrase}"
        for name in texts()
        if phrases_in(text := text_of(ROOT / name))
        for number, line in enumerate(text.splitlines(), 1)
        for phrase in phrases_in(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Whoever finds no buffer asks the disk.", 1),
        ("The older filter gives way to the new one.", 1),
        ("The file is made anew where there is none.", 2),
        ("A send that finds no buffer requests a flush.", 0),
        ("Bytes that are no frame: it goes on with the accounts of the moment.", 3),
        ("There is no message at this offset, and none of these are frames.", 0),
    ],
)
def test_the_check_finds_phrases(text: str, count: int) -> None:
    assert len(phrases_in(text)) == count
