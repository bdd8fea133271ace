"""README and docs: the README's length, links between pages, what the site makes from the code."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from congreve.base import settings
from congreve.broker.accounts.requests import NAME_SERVER_REQUESTS, REQUESTS
from congreve.broker.config import TABLES
from congreve.console.main import COMMANDS
from congreve.io_backends.backends import BACKENDS
from congreve.namesrv.config import NamesrvConfig

from . import setting_types

ROOT = Path(__file__).resolve().parents[2]
README_LINES = 120
SOURCE_FOLDERS = sorted(
    set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
            "package-dir"
        ].values()
    )
)

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", "bench", "deploy"):
        yield from sorted((ROOT / folder).rglob("*.md"))


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub and the site generate them."""
    found = HEADING.findall(CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in found}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(CODE.sub("", page.read_text())):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or name.startswith(("reference/", "../reference/")):
            continue  # the site's build makes reference/, and strict mode checks links to it
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            yield f"{page.relative_to(ROOT)}: {target}"


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_links_between_pages_have_a_target() -> None:
    wrong = [link for page in pages() for link in broken_links(page)]
    assert not wrong, wrong


NETWORK = {
    settings.Change.NOW: "yes, at once",
    settings.Change.AFTER_RESTART: "yes, counts after a restart",
}


def hook(name: str) -> ModuleType:
    """A module of the site's build."""
    spec = importlib.util.spec_from_file_location(
        f"docs_{name}", ROOT / "docs" / "hooks" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The part of the site's build that makes pages from the code."""
    return hook("reference")


@pytest.fixture(scope="module")
def offline() -> ModuleType:
    """The part of the site's build that leaves out scripts from the web."""
    return hook("offline")


@pytest.mark.parametrize("struct", [*TABLES.values(), NamesrvConfig])
def test_every_setting_is_explained_in_the_reference(
    reference: ModuleType, struct: type[msgspec.Struct]
) -> None:
    assert not [row.key for row in settings.rows(struct, "") if not row.text.endswith(".")]
    rows = re.findall(r"^\| `(\w+)` \| \S.* \| ([^|]+) \|$", reference.settings_page(), re.M)
    for key, setting in settings.table_of(struct).items():
        assert (key, NETWORK[setting.change] if setting.change else "no") in rows


def test_links_of_settings_have_a_target(reference: ModuleType) -> None:
    links = re.findall(r"\]\(\.\./([\w.-]+)(?:#([\w-]+))?\)", reference.settings_page())
    assert links
    assert not [
        f"{name}#{anchor}"
        for name, anchor in links
        if anchor and anchor not in anchors(ROOT / "docs" / name)
    ]


def test_every_request_is_in_the_reference(reference: ModuleType) -> None:
    page = reference.requests_page()
    known = [*REQUESTS, *NAME_SERVER_REQUESTS]
    assert not [row.code for row in known if f"{row.code.value} {row.code.name}" not in page]


def test_the_types_of_serve_are_those_of_the_settings() -> None:
    text = setting_types.MODULE.read_text()
    assert setting_types.written() == text, "PYTHONPATH=tests python -m tidy.setting_types"


def test_each_backend_is_explained() -> None:
    page = (ROOT / "docs" / "tuning.md").read_text()
    assert not [
        kind.name for kind in BACKENDS.values() if f"\n| `{kind.name}` | {kind.text} |" not in page
    ]


def test_every_command_is_in_the_reference(reference: ModuleType) -> None:
    page = reference.commands_page()
    assert not [name for name in COMMANDS if f"\n## congreve {name}\n" not in page]
    assert "\n## congreve store verify\n" in page


def test_the_site_builds_strictly_and_loads_nothing_from_the_web(
    tmp_path: Path, offline: ModuleType
) -> None:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="make docs installs what builds the site")
    if not offline.MERMAID.is_file():
        pytest.skip("make docs fetches what draws the diagrams")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "reference" / "settings.html").is_file()
    assert (tmp_path / offline.MERMAID_URI).is_file()
    texts = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".js", ".css")]
    assert texts
    assert not [path for path in texts if offline.external_parts(path.read_text())]


def test_the_theme_draws_with_the_sites_own_library(offline: ModuleType) -> None:
    script = 'a=load("https://unpkg.com/mermaid@11/dist/mermaid.min.js"),b=1'
    assert offline.external_parts(script)
    rewritten = offline.without_cdn(script)
    assert rewritten == f'a=load(new URL("{offline.MERMAID_URI}",__md_scope).href),b=1'
    assert not offline.external_parts(rewritten)


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ('<script src="https://example.org/a.js"></script>', 1),
        ('<link rel="stylesheet" href="https://example.org/a.css">', 1),
        ("<link href=https://fonts.gstatic.com rel=preconnect crossorigin>", 1),
        ('<script src="../assets/javascripts/a.js"></script>', 0),
        ('<a href="https://example.org/">a link</a>', 0),
    ],
)
def test_the_check_finds_parts_from_the_web(offline: ModuleType, page: str, count: int) -> None:
    assert len(offline.external_parts(page)) == count


CITED_DEFECT = re.compile(r"\bD([1-9]\d?)\b|\btest_d(\d+)_")
LISTED_DEFECT = re.compile(r"^\| D(\d+) \|", re.MULTILINE)


def test_every_cited_defect_of_the_reference_is_explained() -> None:
    page = ROOT / "docs" / "reference-defects.md"
    listed = LISTED_DEFECT.findall(page.read_text())
    assert sorted(map(int, listed)) == list(range(1, len(listed) + 1))
    wrong = [
        f"{path.relative_to(ROOT)}: D{number}"
        for folder in (*SOURCE_FOLDERS, "docs", "tests")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".md") and path != Path(__file__)
        for found in CITED_DEFECT.findall(path.read_text())
        if (number := found[0] or found[1]) not in listed
    ]
    assert not wrong, wrong


def test_pages_name_tests_that_exist() -> None:
    known = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")))
    wrong = []
    for page in pages():
        text = page.read_text()
        named = set(re.findall(r"`(test_\w{12,})`", text))
        wrong += [f"{page.name}: {name}" for name in named if f"def {name}(" not in known]
        files = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
        wrong += [f"{page.name}: {name}" for name in files if not (ROOT / name).is_file()]
    assert not wrong, wrong


def test_pages_name_files_that_exist() -> None:
    """A path in backticks below a folder of sources; `congreve/` may also be that of a store."""
    folders = "|".join(folder for folder in SOURCE_FOLDERS if folder != "congreve")
    path = re.compile(rf"`((?:{folders}|bench|docs|examples)/[\w/]+(?:\.\w+)?)`")
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        if page.name != "CHANGELOG.md"
        for name in path.findall(page.read_text())
        if not (ROOT / name).exists()
    ]
    assert not wrong, wrong


def test_every_sub_package_is_explained(reference: ModuleType) -> None:
    tour = reference.packages_page()
    rooms = [
        init.parent.relative_to(ROOT)
        for folder in SOURCE_FOLDERS
        for init in sorted((ROOT / folder).glob("*/__init__.py"))
    ]
    assert rooms
    explained = set(re.findall(r"^\| `(.*)` \| \S.+\.", tour, re.M))
    assert not [str(room) for room in rooms if str(room) not in explained]
