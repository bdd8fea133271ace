"""Power cuts of disks with a real file system; `make soak-cuts` makes many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from cuts.controls import cut_each_once, without_syncs
from cuts.disks import CachingDisk, Disk, Disks, NoDisksError
from cuts.one_broker import Cuts, cut_broker
from cuts.replicas import cut_group, cut_pair
from wholebroker.checker import listed

from congreve.io_backends.backends import BACKENDS, refusal

TRIES = 9

Make = Callable[..., Disks]


@pytest.fixture(scope="module")
def make_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Makes disks of a kind; skips where none can be made."""
    with ExitStack() as stack:

        @cache
        def make(kind: type[Disk], options: str = "") -> Disks:
            try:
                return stack.enter_context(Disks(tmp_path_factory.mktemp("disks"), kind, options))
            except NoDisksError as error:
                pytest.skip(f"not installed: disks that lose power ({error})")

        yield make


@pytest.mark.crash
@pytest.mark.parametrize(
    ("kind", "backend", "policy"),
    [
        (Disk, "mmap", "ASYNC_FLUSH"),
        *((CachingDisk, backend, "SYNC_FLUSH") for backend in BACKENDS),
    ],
)
def test_a_broker_keeps_what_it_acknowledged(
    make_disks: Make, tmp_path: Path, kind: type[Disk], backend: str, policy: str
) -> None:
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    found = cut_broker(make_disks(kind), backend, policy, cuts=1, seed=1)
    assert found.acknowledged
    assert not found.wrong, listed(found.wrong)


@pytest.mark.crash
@pytest.mark.parametrize(("cut", "kind"), [(cut_pair, Disk), (cut_group, CachingDisk)])
def test_members_keep_what_they_acknowledged(
    make_disks: Make,
    tmp_path: Path,
    cut: Callable[..., Coroutine[None, None, Cuts]],
    kind: type[Disk],
) -> None:
    """All members lose their power at once, then one of them."""
    found = asyncio.run(cut(make_disks(kind), tmp_path, "mmap", cuts=2, seed=1))
    assert found.acknowledged
    assert not found.lost and not found.wrong, listed(found.wrong)


@pytest.mark.crash
def test_a_broker_without_its_syncs_loses_messages(make_disks: Make, tmp_path: Path) -> None:
    """Else the cuts would find nothing. One cut may lose nothing: another program may sync."""
    disks, environment = make_disks(Disk), without_syncs(tmp_path)
    found = (cut_each_once(disks, "mmap", 1, environment) for _ in range(TRIES))
    assert any(each.lost for each in found)


@pytest.mark.crash
def test_a_disk_that_is_not_flushed_loses_messages(make_disks: Make) -> None:
    """Else the disks with a write cache would find nothing."""
    disks = make_disks(CachingDisk, ",barrier=0")
    found = (cut_each_once(disks, "mmap", 1) for _ in range(TRIES))
    assert any(each.lost for each in found)
