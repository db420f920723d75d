"""The demo: a shop whose services and reports live on one topic.

`shop` makes events up, `traffic` sends them, `services` are the consumer groups that act on them, `spark_side` is the
pipeline in a process of its own, `screen` draws it all, `performance` runs it and checks in the end that every number
adds up. All of it is an ordinary client: any Kafka will do.
"""
