"""The tables that a broker saves in state files: topics, groups, offsets, filters."""
