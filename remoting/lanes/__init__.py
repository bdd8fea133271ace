"""Native threads that read, split and write connections beside the event loop."""
