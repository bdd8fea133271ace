"""``congreve top``: the figures of ``/varz``, the screen, keys."""
