"""Native threads that read and write connections beside the event loop."""
