"""How fast messages become a table, beside how fast they become Arrow columns."""
