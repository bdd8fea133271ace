# No Python names: compiled code uses streams.pxd.
