"""An elected group whose every record is damaged on most of its members: all logs heal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.certificates import Authority, ha_tls_settings
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd

from congreve.client import Producer

from .logs import files_of, filled, flip, records_of

SETTINGS = {
    "scrubInterval": "300",
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 16),
}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


async def test_records_that_one_member_has_are_at_all_members_again(
    tmp_path: Path, etcd: Etcd
) -> None:
    authority = Authority(tmp_path / "tls")
    encrypted = ha_tls_settings(authority, *authority.issue("member"))
    async with ElectedGroup(tmp_path, etcd, **SETTINGS, **encrypted) as group:
        for number in (1, 2, 3):
            await group.start(number)
            await eventually(lambda: group.in_sync() == set(group.members))
        async with Producer(group.name_server.address, group="p") as producer:
            await filled(producer, 200)
            await filled(producer, 1)  # what was confirmed last is on its way to the slaves

        def equal() -> bool:
            logs = [files_of(group.broker(number)) for number in group.members]
            return logs[0] == logs[1] == logs[2]

        await eventually(equal)
        before = files_of(group.broker(1))
        places = records_of(group.broker(1))
        assert len(before) > 1 and len(places) == 201
        await eventually(
            lambda: all(
                group.broker(number).store.scrub.examiner.end > places[-1]
                for number in group.members
            )
        )
        for at, place in enumerate(places):
            for number in (at % 3 + 1, (at + 1) % 3 + 1):
                flip(group.broker(number), place + 100)
        assert not equal()
        await eventually(equal)
        assert files_of(group.broker(1)) == before
        counts = [group.broker(each).store.scrub.damages for each in group.members]
        await eventually(lambda: not any(each.open for each in counts))
        assert sum(each.repaired for each in counts) == 2 * len(places)
