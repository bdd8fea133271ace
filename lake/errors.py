"""Exceptions of tables."""

from congreve.base.errors import CongreveError


class LakeError(CongreveError):
    """Root of this package's exceptions."""


class TableError(LakeError):
    """The catalog or the table cannot be used: it does not answer, or others changed the table."""


class CommitConflictError(LakeError):
    """Another process committed to the table first; nothing of this commit is in the table."""


class ProgressError(LakeError):
    """The table's progress does not fit the store: messages would be missing or duplicated."""


class NotDurableError(LakeError):
    """A store that was not stopped cleanly has no checkpoint yet."""


class BodySchemaError(LakeError):
    """A schema of bodies cannot be read, or has types that no column has."""


class BodyError(LakeError):
    """A body does not fit its schema."""


class RestoreError(LakeError):
    """A store cannot be rebuilt from these tables."""
