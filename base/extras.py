"""The packages that only an extra installs, and the error where one is missing."""

from congreve.base.errors import CongreveError

EXTRAS = {
    "broker": ("lark", "mmh3", "numpy", "rich", "uvloop", "yaml"),
    "console": ("jinja2", "starlette", "uvicorn"),
    "lake": ("fastavro", "pyiceberg"),
    "arrow": ("pyarrow",),
    "spark": ("pandas", "pyspark"),
}
"""Names that are imported, by the extra of pyproject.toml."""


class MissingPackageError(CongreveError, ImportError):
    """A package that an extra installs is missing; the text names the extra."""


def missing_package(
    error: ModuleNotFoundError, extra: str | None = None
) -> MissingPackageError | None:
    """The error of a user who did not install `extra`, by default the one that has the module.

    None for a module that no extra has. A module of ours is missing where the client alone was
    compiled.
    """
    if error.name is not None and error.name.startswith("congreve."):
        return MissingPackageError(
            f"{error.name} is not in this installation, which has the client alone: servers and"
            " stores need Linux",
            name=error.name,
        )
    package = (error.name or "").partition(".")[0]
    extra = extra or next((name for name, names in EXTRAS.items() if package in names), None)
    if extra is None:
        return None
    return MissingPackageError(
        f"{package} is not installed: pip install 'congreve[{extra}]'", name=error.name
    )
