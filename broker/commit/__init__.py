"""Answers that wait for the disk and for slaves (RocketMQ: GroupCommitService)."""
