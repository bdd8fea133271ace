"""Type checkers find wrong calls of the public classes; at run time errors name these classes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from congreve.client import (
    AdminClient,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ShareConsumer,
    SyncAdminClient,
    SyncLitePullConsumer,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncShareConsumer,
    SyncTransactionProducer,
    TransactionProducer,
)
from congreve.client.consumer.group_client import ConsumerOptions
from congreve.client.consumer.member import GroupMember, MemberOptions
from congreve.client.producer.producer import ProducerOptions
from congreve.client.share.member import ShareMember, ShareOptions
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.options import ConnectionOptions

ROOT = Path(__file__).parents[2]
WRONG = Path(__file__).with_name("wrong_calls.py")
NAMESPACE = ROOT / "build/namespace"
MYPY = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
PYRIGHT = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]


def wrong_lines() -> set[int]:
    lines = WRONG.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if "# wrong" in line}


def refused_lines(tmp_path: Path, command: list[str], packages: str = str(NAMESPACE)) -> set[int]:
    """The lines of errors that a type checker reports.

    It sees this checkout's packages as users do, or without `packages` those of its environment.
    """
    paths = [packages] if packages else []
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": paths}))
    copy = tmp_path / "user_program.py"
    copy.write_text(WRONG.read_text())
    run = subprocess.run(
        [*command, str(copy)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": packages, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"user_program\.py:(\d+)(?::\d+)?(?: -)?:? error", run.stdout)
    assert found, run.stdout + run.stderr
    return {int(line) for line in found}


@pytest.mark.slow
@pytest.mark.parametrize("command", [MYPY, PYRIGHT], ids=["mypy", "pyright"])
def test_type_checkers_find_each_wrong_call_and_no_other(
    tmp_path: Path, command: list[str]
) -> None:
    assert refused_lines(tmp_path, command) == wrong_lines()


@pytest.mark.parametrize(
    ("client", "options", "own"),
    [
        (ClientInstance, ConnectionOptions, {"timeout_s"}),
        (AdminClient, ConnectionOptions, {"timeout_s"}),
        (Producer, ProducerOptions, {"group"}),
        (PullConsumer, ConsumerOptions, {"group"}),
        (GroupMember, MemberOptions, {"group", "topics"}),
        (ShareMember, ShareOptions, {"group", "topics"}),
    ],
)
def test_options_are_those_of_the_constructor(client: type, options: type, own: set[str]) -> None:
    hints = get_type_hints(client.__init__)
    taken = {name: hint for name, hint in hints.items() if name not in {"return", "namesrv", *own}}
    for name in {"connection", "options"} & set(taken):
        (handed_on,) = get_args(taken.pop(name))
        taken |= get_type_hints(handed_on)
    assert taken == get_type_hints(options)


@pytest.mark.parametrize(
    ("client", "given"),
    [
        (AdminClient, {}),
        (SyncAdminClient, {}),
        (Producer, {"group": "p"}),
        (SyncProducer, {"group": "p"}),
        (TransactionProducer, {"group": "p", "check": print}),
        (SyncTransactionProducer, {"group": "p", "check": print}),
        (PullConsumer, {"group": "g"}),
        (SyncPullConsumer, {"group": "g"}),
        (PushConsumer, {"group": "g", "topics": {"T": "*"}}),
        (SyncPushConsumer, {"group": "g", "topics": {"T": "*"}}),
        (LitePullConsumer, {"group": "g"}),
        (SyncLitePullConsumer, {"group": "g"}),
        (ShareConsumer, {"group": "g", "topics": {"T": "*"}}),
        (SyncShareConsumer, {"group": "g", "topics": {"T": "*"}}),
    ],
)
def test_errors_name_the_class_that_the_user_wrote(client: Any, given: dict[str, Any]) -> None:
    with pytest.raises(
        TypeError,
        match=rf"^{client.__name__}\(\) got an unexpected .* 'namespac'; did you mean 'namespace'",
    ):
        client("127.0.0.1:9876", **given, namespac="n")


@pytest.mark.parametrize("client", [PushConsumer, SyncPushConsumer, SyncLitePullConsumer])
def test_errors_name_the_place_of_a_setting(client: Any) -> None:
    with pytest.raises(TypeError, match=r"; use settings=ConsumerSettings\(max_reconsume_times="):
        client("127.0.0.1:9876", group="g", topics={"T": "*"}, max_reconsume_times=3)


def test_errors_of_a_subclass_name_it() -> None:
    class Orders(PushConsumer):
        pass

    orders: Any = Orders
    with pytest.raises(TypeError, match=r"^Orders\(\) got .* 'listner'; did you mean 'listener'"):
        orders("127.0.0.1:9876", group="g", topics={"T": "*"}, listner=print)
