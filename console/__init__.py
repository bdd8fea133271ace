"""The ``congreve`` command."""
