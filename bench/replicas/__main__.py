"""``python -m replicas``: rates and latencies of our pair and of the Java pair, in turns.

    PYTHONPATH=bench:tests python -m replicas
    PYTHONPATH=bench:tests python -m replicas --tls

Each pair has a name server, a master and a slave in processes of their own. ASYNC_MASTER is sent to
at full rate; with SYNC_MASTER every answer waits for the slave. With --tls our pair runs with a
plain and with an encrypted HA port, and the Java pair does not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from harness.certificates import Authority, ha_tls_settings
from harness.replication.replicas import await_equal_logs

from replicas.pair import running_pair

TLS = "congreve, TLS"


class Work(NamedTuple):
    """One row of the table."""

    name: str
    role: str
    size: int
    connections: int
    inflight: int


WORK = (
    Work("ASYNC_MASTER, 1 KiB, 4 x 32", "ASYNC_MASTER", 1024, 4, 32),
    Work("SYNC_MASTER, 128 B, 4 x 64", "SYNC_MASTER", 128, 4, 64),
    Work("SYNC_MASTER, 128 B, one at a time", "SYNC_MASTER", 128, 1, 1),
)


def measure(kind: str, work: Work, seconds: float, folder: Path) -> dict[str, float]:
    """One run of one pair: the figures of `congreve bench`."""
    settings: dict[str, str] = {}
    if kind == TLS:
        authority = Authority(folder / "tls")
        settings = ha_tls_settings(authority, *authority.issue("broker"))
        kind = "congreve"
    with running_pair(kind, folder, settings, brokerRole=work.role) as pair:
        found = pair.send(work.connections, work.inflight, work.size, seconds)
        await_equal_logs(pair.master, pair.slave)
        return found


def main() -> None:
    """Print a line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", default="", help="only rows with this text in their names")
    parser.add_argument("--tls", action="store_true", help="our pair without and with TLS")
    options = parser.parse_args()
    kinds = ("congreve", TLS) if options.tls else ("congreve", "java")
    for turn in range(options.rounds):
        for work in [each for each in WORK if options.work in each.name]:
            for kind in kinds:
                with tempfile.TemporaryDirectory() as folder:
                    found = measure(kind, work, options.seconds, Path(folder))
                print(json.dumps({"round": turn, "work": work.name, "kind": kind, **found}))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
