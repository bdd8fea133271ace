"""Bytes on disk: records, the commit log, consume queues, the key index, recovery, cleaning."""
