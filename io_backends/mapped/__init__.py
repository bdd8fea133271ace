"""The mmap backend."""
