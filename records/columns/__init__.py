"""Records as columns of numpy and Arrow, in chunks that stay in the cache."""
