"""Parquet files of messages, whose pages compiled code fills from Arrow columns."""
