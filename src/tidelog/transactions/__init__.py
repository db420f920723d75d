"""The transaction coordinator: who may write under a transactional id, what is in its transaction, and how that ends.

One `TransactionShard` per partition of `__transaction_state` decides for the transactional ids that live there. It is
pure: requests and time in, outcomes out (see `tidelog.coordination`). The decision to commit or abort is one record,
PrepareCommit or PrepareAbort; once that is committed the owner of the shard is handed the `Markers` to write, and
reports when they are. A shard that finds such a record when it is loaded hands its markers out again, so a decision
survives whoever took it.

On a broker alone a producer need not wait for its markers to be on disk before it begins the next transaction: `ahead`
says why that is safe, and `short_ways` makes it quick.

Both of Kafka's protocols are spoken, side by side: the first, and that of KIP-890 (`transaction.version` 2), in which
every transaction ends with a new epoch. Not here: two-phase commit (KIP-939), and the log's side of a transaction.
"""
