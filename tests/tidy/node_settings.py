"""Writes congreve/node_settings.py, the types of serve()'s settings, from the tables of settings.

PYTHONPATH=tests python -m tidy.node_settings
"""

from __future__ import annotations

from pathlib import Path

from congreve.broker.config import all_settings

MODULE = Path(__file__).resolve().parents[2] / "congreve" / "node_settings.py"
HEAD = '''\
"""The settings of an embedded node, for type checkers.

tests/tidy/node_settings.py writes this from the tables of settings. `congreve settings` explains
each key.
"""

from typing import TypedDict


class NodeSettings(TypedDict, total=False):
    """Keys of broker.conf that ``congreve.serve`` takes."""

'''
#: A node has its own name server.
FORBIDDEN = "namesrvAddr"


def written() -> str:
    """The module's text."""
    lines = [
        f"    {key}: {setting.type.__name__}\n"
        for key, setting in sorted(all_settings().items())
        if key != FORBIDDEN
    ]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    MODULE.write_text(written())
