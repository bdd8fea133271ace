"""A message as Python sees it: properties, flags."""
