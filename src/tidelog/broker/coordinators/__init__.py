"""Coordinators run: the deciders of `groups` and `transactions`, on partitions of their internal topics.

`shard_host` is one partition with its shard, `coordinator` all of a topic's, `shard_requests` carries requests to them.
`groups` and `transactions` put the two coordinators together. `markers` writes the ends of transactions, `verification`
asks for a coordinator's word before a log opens one, `producer_ids` has ids at hand.
"""
