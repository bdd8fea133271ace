# No Python names: compiled code uses batch_body.pxd.
