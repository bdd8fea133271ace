"""Producer and consumer groups: members, subscriptions, locks, notifications.

Heartbeats carry a group's members and their subscriptions (broker/group/consumers.py). The broker
notifies the members of each change, and they share the queues among themselves. Orderly members
lock their queues (broker/group/locks.py). Offsets (broker/metadata/offsets.py) arrive with pulls
or in requests of their own. The broker resets the offsets of a running group through its members
(broker/group/broker_to_client.py).
"""
