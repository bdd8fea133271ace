"""How long a message keeps the append lock."""
