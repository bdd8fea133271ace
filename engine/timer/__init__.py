"""Delayed and timed messages: the timer index and redelivery."""
