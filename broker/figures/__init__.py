"""What all paths count: statistics, times and sizes of requests, slow requests."""
