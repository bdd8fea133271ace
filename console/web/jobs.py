"""Work that takes longer than a page may: it runs in the background, and a page shows its
outcome."""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

import msgspec

from congreve.client.errors import ClientError

JOBS_MAX = 50
RUNNING_MAX = 4


class Job(msgspec.Struct):
    """One piece of work."""

    id: str
    title: str
    task: asyncio.Task[Any]

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.task.done()

    @property
    def error(self) -> str | None:
        """Why it failed, None if it did not."""
        if not self.task.done():
            return None
        if self.task.cancelled():
            return "It was cancelled."
        failure = self.task.exception()
        return None if failure is None else str(failure)

    @property
    def result(self) -> Any:
        """What it returned, None while it runs or if it failed."""
        return self.task.result() if self.task.done() and self.error is None else None


class Jobs:
    """The jobs of one account, the newest JOBS_MAX of them."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def start(self, title: str, work: Coroutine[Any, Any, Any]) -> Job:
        """Begin a piece of work. Raises ClientError if too much runs already."""
        if sum(not job.is_done for job in self._jobs.values()) >= RUNNING_MAX:
            work.close()
            raise ClientError(f"{RUNNING_MAX} jobs run already: wait until one has ended")
        ended = [job.id for job in self._jobs.values() if job.is_done]
        for old in ended[: max(0, len(self._jobs) - JOBS_MAX + 1)]:
            del self._jobs[old]
        task = asyncio.create_task(work)
        job = Job(secrets.token_urlsafe(8), title, task)
        self._jobs[job.id] = job
        return job

    def find(self, job_id: str) -> Job | None:
        """A job by its id, None without one."""
        return self._jobs.get(job_id)

    async def stop(self) -> None:
        """Cancel what still runs."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
