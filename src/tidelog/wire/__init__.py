"""Bytes to messages and back: Kafka's protocol as tables. No I/O happens in this room."""
