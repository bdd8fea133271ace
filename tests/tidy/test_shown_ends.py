"""The broker reads where a queue ends from the log, which knows what readers see of it."""

from __future__ import annotations

import re
from pathlib import Path

from .sources import text_of

ROOT = Path(__file__).resolve().parents[2]
WHOLE_END = re.compile(r"\b(?:queue|q)\.max\b")
WITH_REASON = {
    "broker/figures/stats.py": "counts what was stored",
    "broker/delay/levels.py": "recovery of its own progress, and whether something is hidden",
    "broker/delay/processor.py": "whether the record of an index entry is that of the queue",
    "broker/delay/recalls.py": "its own records",
    "broker/election/replication.py": "whether the queue is here",
    "broker/group/consumer_processor.py": "whether the queue ever had a message",
    "broker/metadata/topic_recovery.py": "topics that have messages",
    "broker/pop/journal.py": "recovery of its own records",
    "broker/replication/slave_synchronize.py": "whether the queue is here",
    "broker/transaction/service.py": "recovery of transactions",
}
"""Modules that need the end with what readers do not see (CommitLog.end_of())."""


def test_only_these_modules_read_the_whole_end_of_a_queue() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "broker").rglob("*.py*")
        if path.suffix in (".py", ".pyx") and WHOLE_END.search(text_of(path))
    }
    assert found == WITH_REASON.keys(), "use CommitLog.end_of(), or name the reason here"
