"""Servers that only answer, over io_uring and over epoll, in turns."""
