"""TLS: its settings, certificates that are replaced while connections stay, sessions of lanes."""
