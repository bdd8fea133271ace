"""``congreve top``: the current figures of a broker."""
