"""The plugin of pytest, as the page about tests shows it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/testing.md").read_text(), re.DOTALL)
PLUGIN = "congreve.pytest_plugin"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_of_the_page_runs(block: str, tmp_path: Path) -> None:
    (tmp_path / "test_block.py").write_text(block)
    if "def test_" in block:
        assert "passed" in run(tmp_path, "-m", "pytest", "-p", PLUGIN, "test_block.py")
    else:
        assert re.search(
            r"<Node: name server 127.0.0.1:\d+, broker ", run(tmp_path, "test_block.py")
        )


def test_pytest_finds_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"congreve": PLUGIN}


def test_a_test_without_a_node_imports_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    assert not {'asyncio', 'msgspec', 'numpy', 'congreve.broker'} & set(sys.modules)\n"
    )
    run(tmp_path, "-m", "pytest", "-p", PLUGIN, "test_nothing.py")
