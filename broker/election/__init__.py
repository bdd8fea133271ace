"""A broker whose role an election decides: coordination service, in-sync set, lease."""
