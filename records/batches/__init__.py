"""Bodies of batches: encoded from messages, or from records that are sent again."""
