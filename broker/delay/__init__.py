"""Delayed and timed messages, from parking to delivery."""
