"""Administration of a cluster: topics, groups, dead letters, timed messages."""

from congreve.client.admin.client import AdminClient, BrokerRoute, QueueStats

__all__ = ["AdminClient", "BrokerRoute", "QueueStats"]
