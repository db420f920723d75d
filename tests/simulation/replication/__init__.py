"""Replication under faults: brokers made of the production deciders and logs, on disks that lose power and on a network
that loses, doubles and reorders.

python -m tests.simulation.replication --seed 7       replay one world, step by step
python -m tests.simulation.replication --seeds 2000   many, with progress
    --partitions 2 --retries                          of several partitions, with a client that retries until it is told
    --partitions 2 --transactions                     with clients that write in transactions
    --partitions 3 --groups                           with members of a group that commit offsets
    --clocks                                          and brokers whose wall clocks jump by days
    --rot                                             and disks on which bits flip and reads fail
    --compaction                                      and brokers that keep only the last record of each key
python -m tests.simulation.replication.mutations      plant each bug of a list and show it caught
"""
