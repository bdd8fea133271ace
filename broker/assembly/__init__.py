"""The parts that broker.py composes: guards of requests, ports, figures, periodic work."""
