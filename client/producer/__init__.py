"""Producers, batches, compression, transactions, request-reply."""
