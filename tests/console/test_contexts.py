"""Names of clusters: ``congreve context``, and what other commands make of it."""

import json
import os
from pathlib import Path

import pytest

from congreve.base.errors import CongreveError
from congreve.console.contexts import Context, ContextFile
from tests.console.commands import command_forks


def run(home: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    done = command_forks().run(arguments, "", {**kept, "XDG_CONFIG_HOME": str(home), **environment})
    return done.returncode, done.stdout, done.stderr


def test_a_context_stands_for_the_address_of_a_cluster(tmp_path: Path, namesrv: str) -> None:
    nowhere = "127.0.0.1:1"
    assert run(tmp_path, "context", "add", "test", "-n", namesrv)[0] == 0
    assert run(tmp_path, "context", "add", "gone", "-n", nowhere, "--access-key", "k" * 8)[0] == 0
    _, listed, _ = run(tmp_path, "context", "list", "--output", "json")
    assert [(row["name"], row["current"]) for row in json.loads(listed)] == [
        *(("gone", False), ("test", True))
    ]
    assert run(tmp_path, "topic", "list")[0] == 0, "the first one is in use"
    assert run(tmp_path, "topic", "list", CONGREVE_CONTEXT="gone")[0] != 0
    assert run(tmp_path, "topic", "list", "--context", "test", CONGREVE_CONTEXT="gone")[0] == 0
    assert run(tmp_path, "topic", "list", NAMESRV_ADDR=nowhere)[0] != 0
    assert run(tmp_path, "topic", "list", "--context", "test", NAMESRV_ADDR=nowhere)[0] == 0
    assert run(tmp_path, "context", "use", "gone")[0] == 0
    assert "its secret" in run(tmp_path, "topic", "list")[2], "the account is the context's"
    assert run(tmp_path, "topic", "list", "-n", namesrv)[0] == 0, "-n wins"
    assert run(tmp_path, "context", "remove", "gone")[0] == 0
    _, listed, _ = run(tmp_path, "context", "list", "--output", "json")
    assert [row["current"] for row in json.loads(listed)] == [False]
    assert run(tmp_path, "context", "add", "two", "-n", f"{namesrv};{nowhere}")[0] == 0
    _, listed, _ = run(tmp_path, "context", "list", "--output", "json")
    assert json.loads(listed)[1]["namesrv"] == [namesrv, nowhere]
    code, _, errors = run(tmp_path, "context", "add", "three", "-n", "a:9876,b:9876")
    assert (code, "put ; between addresses" in errors) == (1, True)


def test_an_unknown_context_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    run(tmp_path, "context", "add", "test", "-n", "127.0.0.1:1")
    for arguments in (("topic", "list", "--context", "tset"), ("context", "use", "tset")):
        code, _, errors = run(tmp_path, *arguments)
        assert code != 0
        assert "there is no context tset" in errors and "test" in errors


def test_a_file_that_is_no_json_is_an_error_with_its_path(tmp_path: Path) -> None:
    file = ContextFile(tmp_path / "contexts.json")
    assert file.find(None) == Context()
    file.path.write_text("{")
    with pytest.raises(CongreveError, match=r"contexts.json: .*repair or remove it"):
        file.load()
