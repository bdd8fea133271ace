"""What `import congreve` offers and what it costs."""

import subprocess
import sys

import pytest

import congreve


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{code}"], check=True)


def test_an_import_loads_no_heavy_module() -> None:
    run("import congreve; assert not {'asyncio', 'msgspec', 'numpy', 'logging'} & set(sys.modules)")


@pytest.mark.parametrize("name", congreve.__all__)
def test_every_public_name_exists_with_a_docstring(name: str) -> None:
    offered = getattr(congreve, name)
    assert offered.__module__.startswith("congreve.")
    assert offered.__doc__


def test_reading_a_store_needs_no_server() -> None:
    run("from congreve import open_store; assert not {'asyncio', 'pyarrow'} & set(sys.modules)")


@pytest.mark.parametrize("module", ["congreve.records.columns.arrow", "congreve.client.pull.arrow"])
def test_an_error_names_the_extra_that_has_arrow(module: str) -> None:
    run(
        "sys.modules['pyarrow'] = None\n"
        f"try: import {module}\n"
        "except ImportError as error: assert 'congreve[arrow]' in str(error), error\n"
        "else: assert False"
    )


def test_dir_lists_names_that_are_not_imported_yet() -> None:
    run("import congreve; assert set(congreve.__all__) <= set(dir(congreve))")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = congreve.nothing_like_it  # type: ignore[attr-defined]
