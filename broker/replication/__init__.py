"""Replication on the HA port: a master sends its log, a slave follows it."""
