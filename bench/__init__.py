"""Measurements of the broker as ratios to what this machine can do at all, taken in the same run.

`python -m bench` starts a broker of its own; `--bootstrap` measures another one, such as Apache Kafka. Every figure in
the README comes from here.
"""
