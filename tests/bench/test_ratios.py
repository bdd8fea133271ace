"""The README's picture and its text show the figures of the saved run."""

import re
from pathlib import Path

import msgspec
from sidebyside.ratios import RESULTS, ratios, write_picture

README = Path(__file__).resolve().parents[2] / "README.md"


def saved_ratios() -> list[tuple[str, float, str]]:
    return ratios(msgspec.json.decode((RESULTS / "sidebyside.json").read_bytes())["summary"])


def test_the_text_for_the_picture_has_its_five_ratios() -> None:
    found = re.search(r"!\[([^\]]*)\]\(bench/results/ratios\.png\)", README.read_text())
    assert found is not None
    shown = re.findall(r"\d+\.\d(?=,|$)", found[1])
    assert shown == [f"{ratio:.1f}" for _, ratio, _ in saved_ratios()]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    write_picture(tmp_path / "ratios.png", saved_ratios())
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
