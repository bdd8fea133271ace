"""SQL92 filters: syntax, compiled program, evaluation."""
