"""Calls of gRPC that become frames of remoting in compiled code, and their answers."""
