"""Recovery of the log after a stop or a crash, and repair of queue entries.

The store takes its lock before it reads anything. congreve/queues.json says up to where every queue
is complete and on disk (docs/decisions/queue-checkpoint.md). The store checks the CRCs of the last
80 MB of queue files before it serves requests. A thread checks the others afterwards
(engine/queue/sums.py), or at once when a pull by tags reads one; index files likewise
(engine/index/state.py).

After a crash recovery reads the log from there on, truncates the queues to it and fills them
again. A record that cannot be read ends the log only if it is behind the durable mark
(docs/formats/state-files.md): before it the record is damaged, and recovery goes on behind it. A
store with queues but without a log does not start, because the log's folder may not be mounted.

An entry is valid if the log has its record at that place, with the same queue and queue offset. A
file with a wrong CRC is repaired from the log (engine/recovery/repair.py), and so is an entry
that a pull finds invalid.
"""
