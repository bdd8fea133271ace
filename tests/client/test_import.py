"""What importing the client costs."""

import os
import resource
import subprocess
import sys

import pytest

import congreve.client


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{code}"], check=True)


def test_an_import_loads_no_heavy_module() -> None:
    run("import congreve.client; assert not {'asyncio', 'msgspec', 'numpy'} & set(sys.modules)")


def test_clients_need_no_numpy_and_no_engine() -> None:
    run(
        "from congreve.client import *\n"
        "assert Producer and SyncPullConsumer and AdminClient\n"
        "assert not {'numpy', 'congreve.engine', 'congreve.broker'} & set(sys.modules)"
    )


def test_no_module_uses_pickle() -> None:
    run(
        "from congreve.client import *\n"
        "import congreve.client.producer.idempotence, congreve.client.consumer.offset_store\n"
        "import congreve.client.observability.trace\n"
        "assert not {'pickle', '_pickle', 'shelve'} & set(sys.modules)"
    )


@pytest.mark.parametrize("name", congreve.client.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(congreve.client, name).__module__.startswith("congreve.")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = congreve.client.nothing_like_it


PRODUCER = "import congreve.client; congreve.client.Producer('127.0.0.1:9876', group='p')"


def test_a_first_producer_costs_little_more_than_asyncio_and_tls() -> None:
    """CPU of whole processes, in turns; the least of several is without other programs' share."""
    costs: dict[str, list[float]] = {"import asyncio, ssl": [], PRODUCER: []}
    for rounds in range(40):
        for code, seconds in costs.items():
            seconds.append(cpu_of(code))
        base, mine = (min(seconds) for seconds in costs.values())
        if rounds >= 7 and mine <= 1.5 * base + 0.030:
            break
    assert mine <= 1.5 * base + 0.030, (base, mine)


def cpu_of(code: str) -> float:
    # With the compiled modules of installed packages, which a first run writes.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
