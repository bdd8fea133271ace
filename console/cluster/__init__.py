"""Commands that ask the brokers of a cluster over the network."""
