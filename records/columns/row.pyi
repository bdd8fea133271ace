# No Python names: compiled code uses row.pxd.
