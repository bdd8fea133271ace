"""The rate of resends of dead letters, and the CPU that a letter takes."""
