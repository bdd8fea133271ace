"""Brokers that copy from each other: masters and slaves, elected groups, their etcd."""
