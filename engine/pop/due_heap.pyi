# No Python names: compiled code uses due_heap.pxd.
