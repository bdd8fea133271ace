"""The README's picture and its text show the figures of the saved run."""

import re
from pathlib import Path

from family import picture

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_text_for_the_picture_has_its_figures() -> None:
    found = re.search(r"!\[([^\]]*)\]\(bench/results/family\.png\)", README.read_text())
    assert found is not None
    assert found[1] == picture.words(picture.saved())


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    picture.write(picture.saved(), tmp_path / "family.png")
    assert (tmp_path / "family.png").read_bytes().startswith(b"\x89PNG")
