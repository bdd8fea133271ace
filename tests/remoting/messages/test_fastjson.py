"""The JSON dialect of bodies and config files."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.steps import at_once
from congreve.remoting.errors import BodyError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import TopicList
from congreve.remoting.messages.bodies import TopicConfig, TopicConfigSerializeWrapper
from congreve.remoting.messages.body import MessageQueue

CONFIG_FILES = json.loads((Path(__file__).parents[2] / "golden/state_files.json").read_text())

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


def integer_keys(tree):
    if not isinstance(tree, dict):
        return tree
    return {
        int(key) if key.lstrip("-").isdigit() else key: integer_keys(item)
        for key, item in tree.items()
    }


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_config_file_is_written_as_the_reference_writes_it(name):
    tree = integer_keys(fastjson.loads(CONFIG_FILES[name]))
    assert fastjson.dumps_pretty(tree) == CONFIG_FILES[name]


def test_bare_integer_keys_are_read():
    text = '{"offsetTable":{"T@G":{0:1,1:2,-3:4}}}'
    assert fastjson.loads(text) == {"offsetTable": {"T@G": {"0": 1, "1": 2, "-3": 4}}}


def test_object_keys_are_read_as_their_text_and_written_from_structs():
    key = '{"brokerName":"b","queueId":0,"topic":"T"}'
    text = '{"offsetTable":{' + key + ':{"maxOffset":7}}}'
    tree = {"offsetTable": {key: {"maxOffset": 7}}}
    assert fastjson.loads(text) == tree
    assert fastjson.loads(json.dumps(tree)) == tree
    queue = MessageQueue("T", "b", 0)
    assert fastjson.dumps({"offsetTable": {queue: {"maxOffset": 7}}}) == text


@pytest.mark.parametrize("name", ["{x}", "{}", '{"a":1}', "$ref", "{", 'a"}:{"'])
@pytest.mark.parametrize("write", [fastjson.dumps, fastjson.dumps_pretty])
def test_a_name_that_looks_like_an_object_does_not_damage_a_file(name, write):
    tree = {"table": {name: {name: "$"}}}
    assert fastjson.loads(write(tree)) == tree


@given(st.recursive(st.text(), lambda names: st.dictionaries(st.text(), names), max_leaves=20))
def test_values_under_any_names_are_read_as_written(tree):
    assert fastjson.loads(fastjson.dumps(tree)) == tree
    assert fastjson.loads(fastjson.dumps_pretty(tree)) == tree


def test_a_reference_is_a_name_like_any_other():
    # No request and no answer of 4.9.4 shares an object; its own tables keep such a key, too.
    text = '{"a":{"n":1},"b":{"$ref":"$.a"}}'
    assert fastjson.loads(text) == {"a": {"n": 1}, "b": {"$ref": "$.a"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{{",
        "}",
        '{{"a":1',
        '{"a"}',
        "[" * 500,
        "{" * 100_000,
        '{{{"a":1}:2}:3}',
        "{" * 30 + ":1}" * 30,
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ud800",
        '"\\',
        b"\xff",
    ],
)
def test_text_other_than_json_is_refused(text):
    with pytest.raises(BodyError):
        fastjson.loads(text)


def test_control_characters_and_invalid_text_do_not_make_a_body_unreadable():
    assert fastjson.loads(b'{"a":"x\x01y\x02\xffz"}') == {"a": "x\x01y\x02\ufffdz"}
    assert fastjson.loads('{"a":"\\ud800","b":"\\ud83d\\ude00","c":"\\\\ud800"}') == {
        "a": "?",
        "b": "\U0001f600",
        "c": "\\ud800",
    }


@given(JSON_VALUES)
def test_standard_json_is_read_as_any_reader_does(value):
    text = json.dumps(value)
    assert json.loads(fastjson.standard(text)) == value


@given(JSON_VALUES)
def test_pretty_and_compact_text_decode_to_equal_values(value):
    assert fastjson.loads(fastjson.dumps_pretty(value)) == fastjson.loads(fastjson.dumps(value))


@given(st.text(alphabet='{}[]:,"\\01ab u$ref', max_size=60))
def test_invalid_text_raises_only_the_documented_error(text):
    with contextlib.suppress(BodyError):
        fastjson.loads(text)


def test_encoding_in_steps_gives_the_same_text() -> None:
    tables = (
        {
            f"k{number * 7919 % 5_000}": {"b": number, "a": [number, None]}
            for number in range(5_000)
        },
        dict.fromkeys(range(3000), "x"),
        {"a": {}, "b": [], "c": None, "d": TopicList(topic_list=["t"] * 3_000)},
        TopicConfigSerializeWrapper(
            topic_config_table={f"T{i}": TopicConfig(topic_name=f"T{i}") for i in range(2_000)}
        ),
    )
    for value in tables:
        assert at_once(fastjson.dump_steps(value)).decode() == fastjson.dumps(value)


def test_an_answer_longer_than_a_frame_is_refused_while_it_is_written() -> None:
    with pytest.raises(BodyError, match="fits into no frame"):
        at_once(fastjson.dump_steps(["x" * 10_000] * 3_000))
