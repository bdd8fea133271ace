"""The hooks, the hosted CI and `make` run the same commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert found, target
    return [line.strip() for line in found[1].splitlines()]


def test_the_hooks_are_the_commands_of_make_lint() -> None:
    entries = re.findall(
        r"entry: (?:env \S+ |\.venv/bin/)(.+)", (ROOT / ".pre-commit-config.yaml").read_text()
    )
    linted = [line.replace("$(BIN)/", "") for line in recipe("lint")]
    of_changed_files, _ = recipe(re.escape("$(VENV)/.cython-lint"))
    linted.append(of_changed_files.replace("$(BIN)/", "").split()[0])
    assert sorted(entries) == sorted(linted)


def test_the_hooks_look_at_every_folder_with_cython() -> None:
    makefile = (ROOT / "Makefile").read_text()
    folders = re.findall(r"^FOLDERS := (.+)$", makefile, re.MULTILINE)[0].split()
    hooked = re.findall(r"files: \^\(([\w|]+)\)/", (ROOT / ".pre-commit-config.yaml").read_text())
    assert sorted(hooked[0].split("|")) == sorted(folders)


def test_the_hosted_tests_are_the_two_commands_of_the_readme() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    ran = re.findall(r"run: (make .+)$", workflow, re.MULTILINE)
    assert ran == ["make check", "make run ONCE=1", "make test"]
