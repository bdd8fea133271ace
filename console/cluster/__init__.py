"""Commands that ask brokers over the network: topics, groups, messages, settings."""
