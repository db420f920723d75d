"""Consumer groups: who is in a group, who owns which partition, and how far each group has read.

One `GroupShard` per partition of `__consumer_offsets` decides for the groups that live there. It is pure: requests and
time in, outcomes out (see `tidelog.coordination`).
"""
