"""A neighbour's sends, and the broker's memory, while one client without an account attacks."""
