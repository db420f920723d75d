"""The door: sockets, dispatch, requests that wait, background loops. It moves bytes and carries out what was decided.

`handlers` answer requests, `coordinators` run groups and transactions, `peers` is what a broker has among others;
`node` puts it all together.
"""
