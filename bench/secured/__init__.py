"""What signatures and TLS cost a broker."""
