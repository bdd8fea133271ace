"""Records as columns of numpy and Arrow."""
