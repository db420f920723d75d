"""The small raw client: one socket, Kafka's framing, our own message tables."""
