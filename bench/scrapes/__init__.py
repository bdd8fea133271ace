"""Scrapes of a broker with many queues and groups, and the sends beside them."""
