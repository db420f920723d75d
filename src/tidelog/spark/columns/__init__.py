"""Record batches become Arrow columns: no Python per record.

`batches` checks and unpacks what a Fetch brought, `kernel` walks the records (compiled, bounds-checked), `build` makes
arrays of what it found.
"""
