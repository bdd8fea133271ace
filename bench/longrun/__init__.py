"""A broker at a fixed rate for half an hour, while segments come and go."""
