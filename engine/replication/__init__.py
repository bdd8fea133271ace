"""The log of another broker: its bytes appended here, and offsets that slaves confirmed."""
