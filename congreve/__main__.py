"""``python -m congreve`` is the ``congreve`` command."""

from congreve.console.main import main

if __name__ == "__main__":
    main()
