"""A resend that is killed in the middle, and the one after it."""

import signal
import subprocess
import sys

import pytest
from harness.dead_letters import GROUP, make_letters, stored_keys

import congreve
from congreve.client import AdminClient

LETTERS = 12_000

# Kills itself as soon as some letters are stored again, while others are in flight.
VICTIM = """
import asyncio, os, signal, sys
from congreve.client import AdminClient

async def main(address, letters):
    async with AdminClient(address) as admin:
        async def watch():
            while sum(q.max_offset for q in await admin.topic_stats("orders")) < letters:
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.gather(watch(), admin.dead_letters.resend("g"))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.crash
async def test_a_resend_after_a_kill_sends_no_letter_twice(node: congreve.Node) -> None:
    async with AdminClient(node.address, timeout_s=1.0) as admin:
        await make_letters(admin, LETTERS)
        for stored in (1, 8_500):
            victim = subprocess.run(
                [sys.executable, "-c", VICTIM, node.address, str(stored)], timeout=120, check=False
            )
            assert victim.returncode == -signal.SIGKILL
        report = await admin.dead_letters.resend(GROUP)
        assert report.sent + report.already_sent == LETTERS
        assert await stored_keys(admin) == list(range(LETTERS))
