# No Python names: compiled code uses window.pxd.
