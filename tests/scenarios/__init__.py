"""A whole broker through its front door: real sockets, real files, real restarts; each test tells one story."""
