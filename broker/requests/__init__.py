"""What sends, pulls, delays and transactions share: checks, properties, topics, answers."""
