"""Producer and consumer groups: members, subscriptions, locks, notifications."""
