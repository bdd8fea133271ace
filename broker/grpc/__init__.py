"""Calls of gRPC: what RocketMQ 5 has in its proxy (docs/decisions/grpc-door.md)."""
