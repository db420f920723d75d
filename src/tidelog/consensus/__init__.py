"""Sans-IO Raft: how a few replicas agree on one history of the cluster's metadata.

`Raft` is given messages, the time and dice; what should happen comes back as a `Ready`. It holds back every message
that promises something until the driver says that what it promises is on disk. Offsets are the log's own: an entry is
a record batch and takes as many offsets as it has records.

Start with `raft.py` (what can be asked), then `ready.py` (what a driver must do); `driver.py` does it.
"""
