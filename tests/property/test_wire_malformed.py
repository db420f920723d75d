"""Bytes that are not messages: one kind of error, and no memory beyond what was received."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import EVERY_MESSAGE, Dice, make

from tidelog.errors import MalformedMessage
from tidelog.wire.frames import decode_request_header
from tidelog.wire.messages import API
from tidelog.wire.messages.data import ProduceRequest
from tidelog.wire.schema import decode, decode_prefix, encode

ALLOCATION_FACTOR = 400  # bytes of objects per byte received: an empty element is one byte and becomes a struct


def decode_or_refuse(kind, version, raw):
    try:
        return decode(kind, version, raw)
    except MalformedMessage:
        return None


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_cut_at_any_byte_is_refused(spec):
    for kind in (spec.request, spec.response):
        for version in range(spec.min, spec.max + 1):
            encoded = encode(make(kind, version, Dice(version)), version)
            step = 1 + len(encoded) // 500
            for size in range(0, len(encoded), step):
                assert decode_or_refuse(kind, version, encoded[:size]) is None


def test_bytes_after_the_message_are_ignored():
    kind, version = ProduceRequest, 9
    message = make(kind, version, Dice(1))
    encoded = encode(message, version)
    assert decode_prefix(kind, version, encoded + b"more") == (message, len(encoded))


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_never_raise_anything_else(seed):
    dice = random.Random(seed)
    for kind, version in EVERY_MESSAGE:
        encoded = bytearray(encode(make(kind, version, Dice(seed)), version))
        for _ in range(6):
            if encoded:
                encoded[dice.randrange(len(encoded))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            decode_or_refuse(kind, version, bytes(encoded))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(EVERY_MESSAGE), st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(case, raw):
    decode_or_refuse(*case, raw)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
def test_random_request_headers_never_raise_anything_else(raw):
    try:
        header = decode_request_header(memoryview(raw))
    except MalformedMessage:
        return
    assert 8 <= header.body <= len(raw)


def absurd_inputs():
    """Every byte value repeated: counts and lengths of all sizes, positive, negative and longer than any varint."""
    for filler in (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0xFE, 0xFF):
        yield bytes([filler]) * 300
        yield b"\0" * 20 + bytes([filler]) * 300


def test_absurd_counts_allocate_nothing_absurd():
    tracemalloc.start()
    try:
        for kind, version in EVERY_MESSAGE:
            decode_or_refuse(kind, version, b"")  # compile outside the measurement
            for raw in absurd_inputs():
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                decode_or_refuse(kind, version, raw)
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < ALLOCATION_FACTOR * len(raw), (kind, version, raw)
    finally:
        tracemalloc.stop()
