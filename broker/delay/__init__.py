"""Delayed and timed messages, from parking to delivery.

A delayed message is parked: stored under a system topic of the broker, with its real topic in
properties. broker/delay/parking.py has the rules. records/restore.pyx turns a parked record back
into the original message, for due messages and for commits. engine/timer/redelivery.pyx does this
for many messages in one pass and appends each to its real queue, 4,000 messages, 2 MiB or 10 ms
at once.

- Levels (broker/delay/levels.py): queue n - 1 of the schedule topic is in the order of its times,
  so one offset for each level is all that is kept. The log says
  (docs/decisions/delays-in-the-log.md) what was delivered since delayOffset.json was written.
- Timed messages (broker/delay/timers.py): the timer topic's queue is the journal.
  engine/timer/index.py keeps the newest quarter of a million entries in a heap and the others in
  sorted runs on disk, merged as they become due. One key (time, offset) separates delivered from
  pending messages.
- Recalls (broker/delay/recalls.py): a message that was taken back stays parked, and delivery
  skips it. The queue of the topic rmq_sys_recalled_messages is the journal of recalls;
  recalls.json has those that a start still needs.
"""
