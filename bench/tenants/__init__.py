"""What one tenant with a quota does to another."""
