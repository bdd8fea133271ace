"""How long clients wait when a machine of a crossed pair dies."""
