"""Ready pipelines: the log becomes tables and other topics, each exactly once and restartable.

A pipeline is a streaming query whose checkpoint lies with its result. `archive` keeps a topic as Parquet or Delta
(`files` writes, `commits` and `delta` make what is written count, `archive_sink` is what Spark calls); `view` is a
topic's latest values as a table; `topics` holds those that only copy from topic to topic.

`dedup`, `aggregate` and `join` remember: `work` is what they share, `fields` opens JSON values and finds what cannot be
used, `measures` and `durations` read what people write, `ordering` keeps a key's records in order.

`own` and `declared` run a user's file. For all: `reading` and `targets` are their two ends, `dead_letters` keeps what
they reject, `settling` what they were told at first; `running` starts, watches and ends them, `registry` remembers
which run on this machine.
"""
