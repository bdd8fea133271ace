"""Where messages come from: files of a store, or brokers."""
