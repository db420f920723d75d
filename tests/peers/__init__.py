"""Tests against software that is not ours: Apache Kafka itself and its Java tools. Run by `make test-peers`."""
