"""How long a switch of an elected group takes, for each client."""
