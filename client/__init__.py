"""Producers and consumers for Python programs, sync and asyncio."""
