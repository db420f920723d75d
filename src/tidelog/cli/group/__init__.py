"""`tidelog group …`: who reads what, how far behind and why; and where to go on."""
