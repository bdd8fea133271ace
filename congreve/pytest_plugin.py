"""Fixtures for tests of programs that send and receive: a node of its own for each test.

pytest finds this module by its entry point; a test that asks for no node imports no more than it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from congreve.base.extras import missing_package

if TYPE_CHECKING:
    from congreve.broker.setting_types import NodeSettings
    from congreve.node import Node


@pytest.fixture
def congreve_settings() -> NodeSettings:
    """Keys of broker.conf for `congreve_node`; override this fixture to set some."""
    return {}


@pytest.fixture
def congreve_node(
    congreve_settings: NodeSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """A running name server and broker without messages; `congreve_node.address` is for clients."""
    try:
        from congreve.node import serve
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from error

    with serve(tmp_path_factory.mktemp("congreve"), **congreve_settings) as node:
        yield node
