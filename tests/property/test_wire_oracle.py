"""Every message in every version, byte for byte against an independent codec."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import (
    EVERY_MESSAGE,
    Dice,
    Drawn,
    make,
    oracle_class,
    oracle_decode,
    oracle_encode,
    to_oracle,
)

from tidelog.wire.messages import API
from tidelog.wire.messages.insight import FIRST_OWN_KEY
from tidelog.wire.schema import decode_prefix, encode

SEEDS = range(6)
KAFKAS = [spec for spec in API.values() if spec.key < FIRST_OWN_KEY]  # of our own questions no oracle knows


def name_of(case):
    return f"{case[0].__name__}-v{case[1]}"


def check_equal(message, version):
    ours = encode(message, version)
    entity = to_oracle(message, version, oracle_class(type(message), version))
    assert ours == oracle_encode(entity)
    assert oracle_decode(type(entity), ours) == entity
    assert decode_prefix(type(message), version, ours) == (message, len(ours))


@pytest.mark.parametrize("spec", KAFKAS, ids=lambda spec: spec.name)
def test_every_version_equals_the_oracle(spec):
    for kind in (spec.request, spec.response):
        for version in range(spec.min, spec.max + 1):
            for seed in SEEDS:
                check_equal(make(kind, version, Dice(seed)), version)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(EVERY_MESSAGE), st.data())
def test_any_message_equals_the_oracle(case, data):
    kind, version = case
    check_equal(make(kind, version, Drawn(data)), version)
