"""Ready pipelines: the log becomes tables and other topics, each exactly once and restartable.

A pipeline is a streaming query whose checkpoint lies with its result. `archive` keeps a topic as Parquet or Delta
(`files` writes, `commits` and `delta` make what is written count, `archive_sink` is what Spark calls); `view` is a
topic's latest values as a table; `topics` holds the ones from topic to topic. `running` starts, watches and ends them,
`registry` remembers which run on this machine.
"""
