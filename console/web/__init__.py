"""The web console: pages about brokers, served by a process of their own."""
