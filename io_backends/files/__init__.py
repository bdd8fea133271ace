"""The file layer: every file of a store but the log's segments, with decorators for tests."""
