# No Python names: compiled code uses batch_entries.pxd.
