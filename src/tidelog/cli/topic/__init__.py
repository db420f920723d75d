"""`tidelog topic …`: topics made, looked at, changed and moved."""
