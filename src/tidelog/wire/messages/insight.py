"""Tidelog's own question, which Kafka's protocol has no words for: what does a coordinator know about a group's past?

Not advertised to clients and far from Kafka's keys. A tool that asks a real Kafka is refused and does without.
"""

from typing import Final

from tidelog.wire.primitives import Bytes, i16
from tidelog.wire.schema import Message, answers, api

FIRST_OWN_KEY: Final = 20_000


@api(key=FIRST_OWN_KEY, versions=(0, 0), flexible=0)
class GroupInsightRequest(Message, kw_only=True):
    group_id: str


@answers(GroupInsightRequest)
class GroupInsightResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    insight: Bytes = b""
    """JSON of `groups.insight.GroupInsight`: it grows with every release, and old tools skip what they do not know."""
