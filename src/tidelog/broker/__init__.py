"""The door: sockets, dispatch, requests that wait, background loops. It moves bytes and decides nothing."""
