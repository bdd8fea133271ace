"""Pulls in the lanes (remoting/lanes): answered or suspended without the GIL."""
