"""Damaged records of the log are fetched from other members: requests, answers, what is left."""
