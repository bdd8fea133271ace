"""Changes of attributes have the results and the texts of RocketMQ 5.5.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.errors import RefusedError
from congreve.broker.metadata.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    VALUE_MAX,
    changed,
    parse_changes,
)

RULES = json.loads((Path(__file__).parents[2] / "golden/attribute_rules.json").read_text())
ALLOWED = {"topic": TOPIC_ATTRIBUTES, "group": GROUP_ATTRIBUTES}


def after(rule: dict[str, Any]) -> dict[str, str] | str:
    known = None if rule["new"] else rule["current"]
    try:
        return changed(known, parse_changes(rule["request"]), ALLOWED[rule["kind"]])
    except RefusedError as error:
        return str(error)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['current']}{rule['request']}")
def test_a_change_has_the_result_of_rocketmq(rule: dict[str, Any]) -> None:
    fault = rule.get("fault")
    if fault is None:
        assert after(rule) == rule["attributes"]
    elif fault.startswith(("RuntimeException", "NumberFormatException")):
        assert after(rule) == fault.partition(": ")[2]
    else:  # a defect of its parser
        assert isinstance(after(rule), str)


def test_the_length_of_a_free_value_is_bounded() -> None:
    with pytest.raises(RefusedError, match="characters"):
        changed(None, {"+lite.bind.topic": "t" * (VALUE_MAX + 1)}, GROUP_ATTRIBUTES)
