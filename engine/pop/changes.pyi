# No Python names: compiled code uses changes.pxd.
