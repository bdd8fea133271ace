"""What all tests share."""

import asyncio
import inspect

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kill-rounds",
        type=int,
        default=50,
        help="How often a crash test kills (default: 50; `make soak` asks for more).",
    )


@pytest.fixture(scope="session")
def kill_rounds(request: pytest.FixtureRequest) -> int:
    """Rounds of a crash test."""
    rounds: int = request.config.getoption("--kill-rounds")
    return rounds


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests on a loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
