"""Commands about replication: masters and slaves, elections."""
