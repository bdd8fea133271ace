"""Where appended bytes are kept and how they become durable."""
