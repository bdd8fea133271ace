"""A broker whose role an election decides: coordination service, in-sync set, lease.

- election: one transaction in etcd: no master, the in-sync set has not changed and contains the
  member. It writes the lease's holder and the next epoch. The set stays: the new master
  acknowledges nothing before each of its members has the log, or has left
- acknowledgement: every member of the set has the message: on its disk with SYNC_FLUSH
- a slave enters: messages first wait for it too; when it has all that may be acknowledged, the
  change goes to etcd
- numbers of members: etcd knows which store has which brokerId: each store has a random id
  (congreve/identity.json). An empty store gets the number as soon as the master has no connection
  from the store that has it, and that one has left the set; a store with messages waits for an
  operator, and its log says why
- a slave that lost its disk: reports less than it had: it gets nothing before it has left the
  set. A member whose store lacks the set's epoch is never elected
- a clean stop: leaves congreve/clean-stop.json (docs/formats/state-files.md) in the store, which
  a start removes first. Without the file, or if the store is not as it says, the stop was unclean
- after an unclean stop: a master that has the member's log knows what it lacks, and first lets
  the member leave the set if that was acknowledged. Without a master each member says in etcd
  (key seats; in Kubernetes an annotation) where its log ends, and waits until all of the set have
  done so
- epochs: each master writes where its part of the log begins (epochFileCheckpoint, RocketMQ 5's
  format). A slave compares its epochs with the master's, and ends its log where they differ: the
  bytes behind are zeroed on disk
- frames: those of RocketMQ 5's AutoSwitch replication, tested with its store in both roles
  (test_auto_switch.py); members of a group are all Congreve

RocketMQ 5 counts a message as replicated when it is in a slave's log, not on its disk, and takes
any report. So a member of RocketMQ 5 would weaken what a group promises, and would need the
controller's protocol.
"""
