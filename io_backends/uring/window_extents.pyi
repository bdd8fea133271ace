# No Python names: compiled code uses window_extents.pxd.
