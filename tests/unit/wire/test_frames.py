"""Frame lengths and headers, against bytes written by hand."""

import pytest

from tidelog.errors import MalformedMessage
from tidelog.wire.frames import (
    FRAME_BYTES_MAX,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    frame_length,
)
from tidelog.wire.schema import request_header_version, response_header_version

METADATA, PRODUCE, API_VERSIONS, OFFSET_DELETE = 3, 0, 18, 47


def test_header_version_one():
    frame = bytes.fromhex("0003 0004 0000002a 0003 616263 beef")
    assert decode_request_header(frame) == RequestHeader(METADATA, 4, 42, "abc", 13)


def test_header_version_two_keeps_the_old_client_id_and_adds_tags():
    frame = bytes.fromhex("0003 0009 0000002a 0003 616263 00 beef")
    assert decode_request_header(memoryview(frame)) == RequestHeader(METADATA, 9, 42, "abc", 14)


def test_unknown_tags_of_a_header_are_skipped():
    frame = bytes.fromhex("0003 0009 00000001 ffff 02 05 02 aaaa 8701 01 bb beef")
    assert decode_request_header(frame) == RequestHeader(METADATA, 9, 1, None, 19)


def test_an_unknown_api_is_read_as_far_as_it_can_be_refused():
    frame = bytes.fromhex("7fff 0009 00000007 ffff ff ff ff")
    assert decode_request_header(frame) == RequestHeader(0x7FFF, 9, 7, None, 8)


def test_a_version_from_the_future_still_has_a_header():
    frame = bytes.fromhex("0012 0063 00000007 0001 78 00")
    assert decode_request_header(frame) == RequestHeader(API_VERSIONS, 99, 7, "x", 12)


def test_tags_of_a_header_are_limited():
    start = bytes.fromhex("0003 0009 00000001 ffff")
    assert decode_request_header(start + bytes.fromhex("e807") + b"\5\0" * 1000).body == 2012
    with pytest.raises(MalformedMessage, match="1001 tags"):
        decode_request_header(start + bytes.fromhex("e907") + b"\5\0" * 1001)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0003 0004 000000",
        "0003 0004 0000002a 00",  # cut in the client id's length
        "0003 0004 0000002a 0003 6162",  # client id longer than the frame
        "0003 0004 0000002a fffe",  # a length below null
        "0003 0004 0000002a 0001 ff",  # not UTF-8
        "0003 0009 0000002a ffff",  # no tag count
        "0003 0009 0000002a ffff 01",  # a tag that is not there
        "0003 0009 0000002a ffff 01 00 05 aa",  # a tag longer than the frame
        "0003 0009 0000002a ffff ffffffff0f",  # four billion tags
        "0003 0009 0000002a ffff ffffffffffff",  # a varint without end
    ],
)
def test_broken_headers(frame):
    with pytest.raises(MalformedMessage):
        decode_request_header(bytes.fromhex(frame))


def test_frame_lengths():
    assert frame_length(bytes.fromhex("00000000")) == 0
    assert frame_length(bytes.fromhex("ff 00000010"), 1) == 16
    assert frame_length((100).to_bytes(4, "big"), limit=100) == 100
    assert frame_length(FRAME_BYTES_MAX.to_bytes(4, "big")) == 100 * 1024 * 1024
    for refused in ("ffffffff", "80000000", "7fffffff", "06400001"):
        with pytest.raises(MalformedMessage):
            frame_length(bytes.fromhex(refused))


def test_requests_round_trip():
    for version, client_id in ((4, None), (4, "me"), (9, None), (9, "me"), (9, "")):
        frame = encode_request(METADATA, version, 5, client_id, b"body")
        assert frame_length(frame) == len(frame) - 4
        header = decode_request_header(frame[4:])
        assert header[:4] == (METADATA, version, 5, client_id)
        assert frame[4 + header.body :] == b"body"


def test_responses():
    assert encode_response(METADATA, 8, 5, b"body") == bytes.fromhex("00000008 00000005") + b"body"
    assert encode_response(METADATA, 9, 5, b"body") == bytes.fromhex("00000009 00000005 00") + b"body"
    assert decode_response_header(METADATA, 9, bytes.fromhex("00000005 00 ff")) == (5, 5)
    assert decode_response_header(METADATA, 8, bytes.fromhex("00000005 00 ff")) == (5, 4)
    with pytest.raises(MalformedMessage):
        decode_response_header(METADATA, 9, bytes.fromhex("00000005"))


def test_the_answer_to_api_versions_never_has_a_flexible_header():
    assert [response_header_version(API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert request_header_version(API_VERSIONS, 3) == 2
    assert encode_response(API_VERSIONS, 4, 5, b"") == bytes.fromhex("00000004 00000005")


def test_an_api_that_never_became_flexible():
    assert request_header_version(OFFSET_DELETE, 0) == 1
    assert response_header_version(OFFSET_DELETE, 0) == 0


def test_an_unknown_api_can_be_answered():
    assert encode_response(0x7FFF, 3, 5, b"\0\x23") == bytes.fromhex("00000006 00000005 0023")
