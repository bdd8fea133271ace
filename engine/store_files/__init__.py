"""A store that is read without opening it: its files, its visible end, verification."""
