"""The log on disk: segments, indexes, producer state, recovery, retention, compaction.

Only `disk.py` touches files. Everything else is handed a `Disk`, bytes and the time, so a simulator can run the same
code.
"""
