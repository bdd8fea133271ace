"""``congreve tune``: measures a disk in several rounds and chooses the log's I/O backend."""
