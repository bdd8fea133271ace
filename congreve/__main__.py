"""``python -m congreve`` is the ``congreve`` command."""

from congreve.console.main import main

main()
