"""Bytes on the wire: frames, headers, codes, bodies, server and client connections."""
