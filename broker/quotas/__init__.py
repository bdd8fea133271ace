"""Quotas: how many messages and bytes a second topics, groups, accounts and addresses may use."""
