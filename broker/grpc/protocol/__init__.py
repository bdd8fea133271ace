"""The protocol itself: calls, their refusals, and names that clients may use."""
