"""Transactional messages: half messages, their ends, checks and recovery.

A half message is a record of the half topic. Its end is an op record, directly after the
committed message if there is one. records/message/half_messages.py says what these records look
like, broker/transaction/service.py stores them, and broker/transaction/fast.pyx does both for the
ordinary case. broker/transaction/window.pyx holds one bit for each half message
(docs/decisions/half-messages.md) after the first open one; the check loop is
broker/transaction/check.py.

After a start broker/transaction/recovery.py reads op records from the offset of the group
CID_RMQ_SYS_TRANS on. If the log's last record is a committed message, a kill lost its op record,
and recovery writes it.
"""
