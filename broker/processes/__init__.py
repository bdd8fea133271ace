"""Processes that run beside a broker: the web console and the export of tables."""
