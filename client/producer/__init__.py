"""Producers, batches, compression, transactions, request-reply.

client/producer/producer.py checks and prepares a message (client/outgoing.py),
client/producer/sending.py chooses the queue and retries failed sends,
remoting/transport/connection.py writes the request and remoting/transport/pending_requests.py
keeps its future. Requests of one iteration of the event loop share one write. send_many encodes
batches from lists, Arrow and numpy columns (records/batches/batch.pyx) and keeps several in
flight. Traces and metrics are SendHooks. A sync producer uses the same sending with
remoting/transport/blocking_client.py: the sending thread reads its answer itself.
"""
