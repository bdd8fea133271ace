# No Python names: compiled code uses signed_fields.pxd.
