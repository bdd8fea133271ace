"""A broker and its name server as processes, which end in different ways."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from harness import faulty_broker, servers
from wholebroker.administration import SETTINGS
from wholebroker.checker import Found, broken, continue_from
from wholebroker.clients import Clients
from wholebroker.history import History
from wholebroker.messages import LEVELS_MS, register_producer, serve
from wholebroker.reading import lookup_faults, read_all
from wholebroker.session import Session

from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.files.faulty import Failpoint

STUCK_S = 120
ENDED_EARLY = -1
LEVELS = " ".join(f"{ms // 1000}s" for ms in LEVELS_MS)
FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 100),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
#: Periodic saves happen often, so that kills interrupt them.
INTERVALS = {
    "flushConsumerOffsetInterval": "100",
    "flushDelayOffsetInterval": "200",
    "transactionTimeOut": "50",
    "transactionCheckInterval": "250",
    "transactionCheckMax": "10000",
}


class BrokerRuns:
    """The successive processes of one broker on one store, and the history of its clients."""

    def __init__(
        self,
        folder: Path,
        backend: str,
        policy: str,
        seed: int,
        lanes: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.history = History()
        self.namesrv = servers.namesrv("congreve", folder / "namesrv")
        self.broker = servers.broker(
            *("congreve", folder / "broker", self.namesrv.address),
            settings={
                **FILES,
                **INTERVALS,
                "ioBackend": backend,
                "flushDiskType": policy,
                "networkThreads": str(lanes),
                "messageDelayLevel": LEVELS,
                "enablePropertyFilter": "true",
                **(settings or {}),
            },
        )
        self.namesrv.command += ["--data", str(folder / "namesrv")]
        self._chance = random.Random(seed)
        self._seed = seed
        self._lives = 0

    def __enter__(self) -> BrokerRuns:
        self.namesrv.start()
        self.broker.start()
        found = self.read()
        for key in SETTINGS:
            self.history.register("config", key).done(found.values["config", key])
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()
        self.namesrv.kill()

    # --- ends

    def use(self, seconds: float) -> Clients:
        """Start clients, and return them after `seconds` of requests."""
        self._lives += 1
        clients = Clients(
            self.history,
            self.broker.address,
            self.namesrv.address,
            self._seed * 1000 + self._lives,
        )
        clients.start()
        time.sleep(seconds)
        return clients

    def kill_at_work(self) -> None:
        clients = self.use(self._chance.uniform(0.05, 1.2))
        self.broker.kill()
        clients.join()

    def kill_both(self) -> None:
        """The name server first, a moment later the broker."""
        clients = self.use(self._chance.uniform(0.05, 0.8))
        self.namesrv.kill()
        time.sleep(self._chance.uniform(0, 0.1))
        self.broker.kill()
        clients.join()
        self.namesrv.start()

    def kill_while_it_stops(self) -> None:
        clients = self.use(self._chance.uniform(0.05, 0.8))
        process = self.broker.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        time.sleep(self._chance.uniform(0, 0.3))
        self.broker.kill()
        clients.join()

    def kill_while_it_starts(self) -> None:
        """Kill the broker at work, then once or twice before it is ready."""
        self.kill_at_work()
        for _ in range(self._chance.randrange(1, 3)):
            self.broker.spawn()
            time.sleep(self._chance.uniform(0.2, 1.5))
            self.broker.kill()

    def end_somehow(self) -> None:
        """Kill the broker at least once, mostly at work."""
        often = [self.kill_at_work] * 5
        self._chance.choice(
            [*often, self.kill_both, self.kill_while_it_stops, self.kill_while_it_starts]
        )()

    def run_with_failpoint(self, failpoint: Failpoint, *, stops: bool) -> int:
        """Run a broker in which one call fails or ends it; returns its exit code, -9 for a kill.

        `stops` requests a clean stop of a broker that is still running.
        """
        usual = self.broker.command
        self.broker.command = faulty_broker.command(
            failpoint, self.broker.config, self.namesrv.address
        )
        try:
            self.broker.start()
        except RuntimeError:  # the broker ended before it was ready
            return ENDED_EARLY
        finally:
            self.broker.command = usual
        clients = self.use(0)
        process = self.broker.process
        assert process is not None
        deadline = time.monotonic() + 1.0
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if not stops:
            code = self.broker.kill()
            clients.join()
            return code
        clients.join()
        return self.broker.stop()

    # --- checks

    def read(self) -> Found:
        return read_all(self.broker.address, self.namesrv.address, self.history)

    def start_and_check(self) -> list[str]:
        """Start the broker; returns the violations. The next check continues from the state found
        now."""
        self.broker.start()
        return self.check(self.read())

    def check(self, found: Found) -> list[str]:
        """The violations in what was read; the next check continues from it."""
        wrong = broken(self.history, found)
        wrong += lookup_faults(self.broker.address, found, self._chance, 3)
        wrong += self._tracebacks()
        continue_from(self.history, found)
        return wrong

    def settle_and_stop(self) -> list[str]:
        """Wait for all deliveries, stop the broker, and verify the store."""
        self._wait_for_all()
        found = self.read()
        wrong = broken(self.history, found, final=True)
        code = self.broker.stop()
        if code not in (0, 143):
            wrong.append(f"a clean stop ends with {code}: {self.broker.tail()}")
        wrong += self._tracebacks()
        report = StoreExaminer(str(self.broker.store)).verify()
        return wrong + report.problems

    def _wait_for_all(self) -> None:
        deadline = time.monotonic() + STUCK_S
        waiting = {key: copies for key, copies in self.history.copies.items() if not copies.at_once}
        with Session(self.broker.address, self.history, partial(serve, self.history)) as session:
            register_producer(session, "settling")
            while time.monotonic() < deadline:
                session.serve_for(0.5)
                found = self.read()
                if all(
                    len(found.by_number.get(key, [])) >= copies.promised
                    for key, copies in waiting.items()
                ):
                    break
            # A second copy may be delivered a moment after the first.
            session.serve_for(1.5)

    def _tracebacks(self) -> list[str]:
        wrong = []
        for server in (self.broker, self.namesrv):
            text = server.log.read_text(errors="replace")
            if "Traceback" in text:
                at = text.index("Traceback")
                wrong.append(f"{server.log.name}: {text[max(at - 300, 0) : at + 1500]}")
        return wrong
