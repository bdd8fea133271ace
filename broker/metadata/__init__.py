"""State that is kept in files: topics, groups, offsets, filters."""
