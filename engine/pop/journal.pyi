# No Python names: compiled code uses journal.pxd.
