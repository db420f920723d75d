"""Who holds what: the metadata image and the facts it is made of, the controller's decisions, a partition's replica.

`image` and `records` are the picture. `controller`, `brokers`, `elections` and `config_changes` decide on it: pure
functions from a picture to records. `replica`, `progress` and `follower` are one partition as its leader and as its
followers have it. `metadata_log` stores the picture of a broker alone, `metadata_machine` and `quorum_store` that of a
cluster.
"""
