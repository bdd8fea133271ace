"""A log that heals: connections on which brokers ask each other for damaged records."""
