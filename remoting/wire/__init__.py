"""Frames and their compiled codecs."""
