"""Writes broker/setting_types.py, the types of keywords, from the tables of settings.

PYTHONPATH=tests python -m tidy.setting_types
"""

from __future__ import annotations

from pathlib import Path

from congreve.broker.config import all_settings

MODULE = Path(__file__).resolve().parents[2] / "broker" / "setting_types.py"
HEAD = '''\
"""The settings that programs pass as keywords, for type checkers.

tests/tidy/setting_types.py writes this from the tables of settings. `congreve settings` explains
each key.
"""

from typing import TypedDict


class NodeSettings(TypedDict, total=False):
    """Keys of broker.conf that ``congreve.serve`` takes."""

'''
#: A node has its own name server.
FORBIDDEN = "namesrvAddr"
TAIL = f'''

class BrokerSettings(NodeSettings, total=False):
    """Keys of broker.conf that ``Broker.from_conf`` takes."""

    {FORBIDDEN}: str
'''


def written() -> str:
    """The module's text."""
    lines = [
        f"    {key}: {setting.type.__name__}\n"
        for key, setting in sorted(all_settings().items())
        if key != FORBIDDEN
    ]
    return HEAD + "".join(lines) + TAIL


if __name__ == "__main__":
    MODULE.write_text(written())
