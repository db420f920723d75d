"""`tidelog cluster …`: brokers on this machine, and any cluster looked at and changed."""
