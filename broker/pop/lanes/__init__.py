"""Pops and acknowledgements in the lanes, without the event loop."""
