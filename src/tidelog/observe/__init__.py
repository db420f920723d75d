"""Consumer groups seen from outside: where they stand, how fast they move, and why one lags.

An ordinary client of the protocol, so it works on any Kafka. A Tidelog coordinator is also asked for what it remembers.

    from tidelog.observe import diagnose

    for finding in diagnose("localhost:9092", "billing").findings:
        print(finding.summary, finding.advice)
"""

from tidelog.observe.why import diagnose

__all__ = ["diagnose"]
