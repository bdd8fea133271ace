"""Clusters of many brokers on one machine: a name server at size, and real brokers."""
