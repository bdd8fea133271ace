"""Messages that pops have taken and consumers have not acknowledged (POP)."""
