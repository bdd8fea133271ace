"""The parts that broker.py composes: processors, guards of requests, ports, monitors."""
