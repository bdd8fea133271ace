"""What a message is: the record layout, properties, ids and checksums."""
