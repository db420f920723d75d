"""Tidelog beside its peers: every row in one run, in turns (A B A B …), with the same clients and equal guarantees.

`python -m bench.peers` (or `make bench-peers`) fetches the peers, runs what `bench/results/peers.json` lacks and
writes the table and the charts next to it. What a row does is in `rows`, how a peer is started is in `servers`.
"""
