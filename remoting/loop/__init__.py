"""What runs on an event loop, or beside it: timers, pieces of long work, threads, a watchdog."""
