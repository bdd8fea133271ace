"""Pulls in the lanes (remoting/lanes): answered, or held, without the GIL."""
