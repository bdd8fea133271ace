"""The manifests of deploy/ follow their schemas, and name settings that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from congreve.broker.broker_conf import parse_config
from congreve.broker.config import BrokerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def succeeds(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_kubernetes_manifest_is_valid(path: Path) -> None:
    succeeds("kubernetes_validate", "--strict", str(path))


def test_the_compose_file_is_valid() -> None:
    path = DEPLOY / "compose.yaml"
    succeeds("check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path))


def test_settings_of_the_manifests_exist() -> None:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "group.yaml").read_text())
    (conf,) = (each["data"]["broker.conf"] for each in documents if each["kind"] == "ConfigMap")
    assert not parse_config(conf, "broker.conf").unknown
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    commands = [service.get("command", []) for service in services.values()]
    texts = [
        argument.removeprefix("--set=")
        for command in commands
        for argument in command
        if argument.startswith("--set=")
    ]
    assert len(texts) > 10
    assert not BrokerConfig().apply(dict(text.split("=", 1) for text in texts))
