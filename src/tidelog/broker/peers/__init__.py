"""A broker among others: everything it has because it is not alone. `side` puts it together.

`links` are connections to the others. `quorum` runs this broker's replica of the metadata quorum and `bootstrap` begins
a new one; `quorum_metadata` is the door to what it keeps. `membership` says that this broker is there, `office` is the
controller while it leads the quorum. `replication` follows leaders, `isr` keeps the in-sync sets of what is led here,
`marker_sender` ends transactions elsewhere, `members` is who clients are told of.
"""
