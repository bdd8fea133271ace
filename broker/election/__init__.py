"""Automatic failover: the members of a group elect their master through a coordination service."""
