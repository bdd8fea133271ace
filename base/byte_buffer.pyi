# No Python names: compiled code uses byte_buffer.pxd.
