"""Consumers of messages that brokers share out one by one.

client/share/receiving.py asks one broker after the other, and where all have nothing, waits for
the news of any. client/share/popping.py gives each message a receipt, client/share/settling.py
acknowledges and extends by it, and client/share/in_flight.py counts receipts and extends those of
running listeners (client/share/workers.py).
"""
