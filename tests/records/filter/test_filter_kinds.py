"""The kinds of filters."""

import pytest

from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.kinds import FILTERS, compiler_of, filter_kind, is_on_tags


def test_a_subscription_without_a_kind_names_tags() -> None:
    for name in (None, "", "TAG"):
        assert filter_kind(name).compiler is None and is_on_tags(name)
    assert not is_on_tags("SQL92") and not is_on_tags("XPATH")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="unknown filter type XPATH: use TAG or SQL92"):
        compiler_of("XPATH")
    with pytest.raises(FilterSyntaxError, match="has no programs"):
        compiler_of("TAG")


def test_each_kind_with_programs_has_a_compiler() -> None:
    kinds = [kind for kind in FILTERS.values() if kind.compiler is not None]
    assert kinds
    assert all(compiler_of(kind.name).compile("a = 1") is not None for kind in kinds)
