"""`congreve run`, `broker`, `namesrv` and their log."""
