"""Nothing for Python: `headerdecoder.HeaderDecoder` shows what is read here."""
