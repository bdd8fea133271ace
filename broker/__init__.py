"""The broker: processors of requests over the message store."""
