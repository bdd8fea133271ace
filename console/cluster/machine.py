"""Commands of an operator that stop or restart a broker, run for one broker after the other."""

from __future__ import annotations

import asyncio
import os
import sys

from congreve.base.errors import CongreveError


class MachineCommand:
    """A command of the shell, which gets the broker as the variables BROKER, BROKER_ID, ADDRESS,
    HOST and PORT of its environment."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def run(self, broker: str, number: int, address: str) -> None:
        """Run it to its end; its output goes to stderr. Raises CongreveError if it fails."""
        host, _, port = address.rpartition(":")
        named = {
            "BROKER": broker,
            "BROKER_ID": str(number),
            "ADDRESS": address,
            "HOST": host.strip("[]"),
            "PORT": port,
        }
        process = await asyncio.create_subprocess_shell(
            self._text,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env={**os.environ, **named},
        )
        code = await process.wait()
        if code:
            raise CongreveError(
                f"the command for {broker} {number} at {address} ended with {code}: {self._text}"
            )
