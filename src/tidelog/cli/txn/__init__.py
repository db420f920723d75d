"""`tidelog txn …`: transactions looked at and ended."""
