# No Python names: compiled code uses bus_error.pxd.
