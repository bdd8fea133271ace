"""Reads of consume queues for pulls: entries become the bytes of an answer."""
