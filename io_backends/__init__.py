"""Where appended bytes live and how they become durable."""
