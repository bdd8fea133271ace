"""The congreve command."""
