"""The broker daemon: request processors over the engine, and the embedded form."""
