"""Order across partitions and topics: stamps in record headers that say what a record's sender knew when it sent it.

    from tidelog.causality import Clock
    clock = Clock("checkout", now_ms)                  # one per process; `now_ms` returns milliseconds since 1970
    stamp = clock.receive(message.headers())           # of everything that is read
    producer.produce("payments", value, headers=clock.send_headers())

A stamp holds a hybrid logical clock (`hybrid`), which puts all records into one order that no effect precedes its cause
in, and a vector clock (`vector`), which tells causes from coincidence. `stamp` has the header's bytes, `clock` what a
process does with them. Headers are the lists of pairs that confluent-kafka, kafka-python and aiokafka take and give.
"""

from tidelog.causality.clock import Clock, read_stamp
from tidelog.causality.hybrid import ClockDrift, HybridTime
from tidelog.causality.stamp import HEADER, InvalidStamp, Stamp
from tidelog.causality.vector import Order, VectorClock

__all__ = [
    "HEADER",
    "Clock",
    "ClockDrift",
    "HybridTime",
    "InvalidStamp",
    "Order",
    "Stamp",
    "VectorClock",
    "read_stamp",
]
