"""The log of a master, appended here byte for byte; what answers wait for."""
