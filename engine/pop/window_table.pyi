# No Python names: compiled code uses window_table.pxd.
