"""The JSON dialect of bodies and config files."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.remoting import fastjson
from congreve.remoting.errors import BodyError

CONFIG_FILES = json.loads((Path(__file__).parent / "config_json.json").read_text())

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


def test_object_keys_are_read_and_written_as_given():
    key = '{"brokerName":"b","queueId":0,"topic":"T"}'
    text = '{"offsetTable":{' + key + ':{"maxOffset":7}}}'
    tree = {"offsetTable": {key: {"maxOffset": 7}}}
    assert fastjson.loads(text) == tree
    assert fastjson.loads(json.dumps(tree)) == tree
    assert fastjson.dumps(tree) == text


def test_object_keys_inside_object_keys_are_read():
    assert fastjson.loads('{{{"a":1}:2}:{3:4}}') == {'{"{\\"a\\":1}":2}': {"3": 4}}


def test_shared_objects_are_resolved():
    text = '{"a":{"x":[{"n":1},2]},"b":{"$ref":"$.a"},"c":{"$ref":"$.a.x[0]"}}'
    read = fastjson.loads(text)
    assert read["b"] == read["a"]
    assert read["c"] == {"n": 1}


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
        '{"$ref":"$"}',
        '{"a":{"$ref":"$.b"}}',
        '{"a":{"$ref":"$.a"}}',
        '"\\',
        b"\xff",
    ],
)
def test_what_is_not_json_is_refused(text):
    with pytest.raises(BodyError):
        fastjson.loads(text)


def test_raw_control_characters_and_broken_text_do_not_lose_a_body():
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
def test_pretty_and_compact_text_say_the_same(value):
    assert fastjson.loads(fastjson.dumps_pretty(value)) == fastjson.loads(fastjson.dumps(value))


@given(st.text(alphabet='{}[]:,"\\01ab u$ref', max_size=60))
def test_no_text_makes_the_reader_fail_in_another_way(text):
    with contextlib.suppress(BodyError):
        fastjson.loads(text)
