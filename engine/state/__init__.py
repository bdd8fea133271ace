"""Small files beside the log: state, checkpoint, lock, the backend that tune chose."""
