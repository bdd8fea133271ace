"""Sessions of HTTP/2 by libnghttp2; a build without its header has only `built.py` of it."""
