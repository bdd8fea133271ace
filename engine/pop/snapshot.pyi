# No Python names: compiled code uses snapshot.pxd.
