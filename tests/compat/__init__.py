"""Unmodified Kafka clients against a real broker over real sockets.

Set `COMPAT_BOOTSTRAP=host:port` to run the same tests against another broker, such as Apache Kafka: that is how we
know that a test states Kafka's behaviour and not our own.
"""
