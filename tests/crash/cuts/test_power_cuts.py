"""Power cuts of disks with a real file system; `make soak-cuts` makes many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
from cuts.controls import without_syncs
from cuts.disks import Disks, NoDisksError
from cuts.one_broker import Cuts, cut_broker
from cuts.replicas import cut_group, cut_pair
from wholebroker.checker import listed

from congreve.io_backends.backends import BACKENDS, refusal

TRIES = 9


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    try:
        made = Disks(tmp_path_factory.mktemp("disks"))
    except NoDisksError as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.mark.crash
@pytest.mark.parametrize(
    ("backend", "policy"), [*((each, "SYNC_FLUSH") for each in BACKENDS), ("mmap", "ASYNC_FLUSH")]
)
def test_a_broker_keeps_what_it_acknowledged(
    disks: Disks, tmp_path: Path, backend: str, policy: str
) -> None:
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    found = cut_broker(disks, backend, policy, cuts=1, seed=1)
    assert found.acknowledged
    assert not found.wrong, listed(found.wrong)


@pytest.mark.crash
@pytest.mark.parametrize("cut", [cut_pair, cut_group])
def test_members_keep_what_they_acknowledged(
    disks: Disks, tmp_path: Path, cut: Callable[..., Coroutine[None, None, Cuts]]
) -> None:
    """All members lose their power at once, then one of them."""
    found = asyncio.run(cut(disks, tmp_path, "mmap", cuts=2, seed=1))
    assert found.acknowledged
    assert not found.lost and not found.wrong, listed(found.wrong)


@pytest.mark.crash
def test_a_broker_without_its_syncs_loses_messages(disks: Disks, tmp_path: Path) -> None:
    """Else the cuts would find nothing. One cut may lose nothing: another program may sync."""
    environment = without_syncs(tmp_path)
    assert any(
        cut_broker(disks, "mmap", "SYNC_FLUSH", 1, seed, environment).lost for seed in range(TRIES)
    )
