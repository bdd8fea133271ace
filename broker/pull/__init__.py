"""The rules of pulls, waits for the disk, queries, and messages that only an archive has."""
