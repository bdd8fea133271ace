"""The metrics port: figures for Prometheus and as JSON, and probes."""
