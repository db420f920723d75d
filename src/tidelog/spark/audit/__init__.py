"""`tidelog pipeline audit`: does a topic keep the ordering contract? Looked up in the log, at Spark's scale.

    from tidelog.spark.audit import Wanted, audit
    report = audit(spark, Wanted(topic="orders", bootstrap_servers="localhost:9092", sequence="version"))

`scope` settles what is read; `batch_rows` reads batch headers, and `skeleton` checks what they say; `records` and
`keys` check the records (`fields` finds event times, sequences and ids in them, `homes` the partitions of keys);
`run` does all of it; `result` is what comes out, `page` and `plots` draw it.
"""

from tidelog.spark.audit.result import Check, Report, Verdict
from tidelog.spark.audit.run import audit
from tidelog.spark.audit.scope import Wanted

__all__ = ["Check", "Report", "Verdict", "Wanted", "audit"]
