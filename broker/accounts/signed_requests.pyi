# No Python names: compiled code uses signed_requests.pxd.
