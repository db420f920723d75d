"""Who holds what: the metadata image and the facts it is made of, the controller's decisions, a partition's replica.

`image` and `records` are the picture. `controller`, `placement`, `brokers`, `elections` and `config_changes` decide
on it, by pure functions. `replica`, `progress` and `follower` are one partition as its leader and as its followers
have it, `refusals` what it did not take a moment ago, `throttle` how fast one may be copied. `metadata_log` stores
the picture of a broker alone, `metadata_machine` and `quorum_store` that of a cluster.
"""
