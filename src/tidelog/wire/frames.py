"""Frames and headers: what surrounds every message on a connection.

A frame is an i32 length and that many bytes: a header, then the message. Header versions are not on the wire; they
follow from the API and its version, so an unknown API can be refused only because its first eight bytes never changed.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.wire.primitives import read_uvarint
from tidelog.wire.schema import API, request_header_version, response_header_version

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes
FRAME_BYTES_MAX_UNAUTHENTICATED: Final = 64 * 1024
LENGTH_SIZE: Final = 4

_LENGTH: Final = Struct(">i")
_REQUEST: Final = Struct(">hhih")  # api key, version, correlation id, client id length
_REQUEST_START: Final = Struct(">hhi")
_CLIENT_ID_LENGTH: Final = Struct(">h")
_RESPONSE_V0: Final = Struct(">ii")
_RESPONSE_V1: Final = Struct(">iix")
_TAG_SIZE_MIN: Final = 2
_TAGS_MAX: Final = 1000  # Kafka defines none yet


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int  # where in the frame the message begins


def frame_length(buffer: bytes | bytearray | memoryview, offset: int = 0, limit: int = FRAME_BYTES_MAX) -> int:
    """The number of bytes after the four that hold it. Refused before anything is allocated for it."""
    length: int = _LENGTH.unpack_from(buffer, offset)[0]
    if not 0 <= length <= limit:
        raise MalformedMessage(f"frame of {length} bytes, allowed are 0 to {limit}")
    return length


def decode_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Reads the header of a frame given without its length.

    Of an API this room does not know only key, version and correlation id are read: enough to refuse it.
    """
    try:
        key, version, correlation_id = _REQUEST_START.unpack_from(frame)
        spec = API.get(key)
        if spec is None:
            return RequestHeader(key, version, correlation_id, None, _REQUEST_START.size)
        length: int = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_START.size)[0]
        position = _REQUEST.size
        client_id = None
        # In header version 2 too this string kept its two-byte length.
        if length != -1:
            stop = position + length
            if not position <= stop <= len(frame):
                raise MalformedMessage("client id: length outside the frame")
            client_id = str(frame[position:stop], "utf-8")
            position = stop
        if version >= spec.flexible:
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"request header: {problem}") from problem
    return RequestHeader(key, version, correlation_id, client_id, position)


def _skip_tags(frame: bytes | memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    if count > min(_TAGS_MAX, (len(frame) - position) // _TAG_SIZE_MIN):
        raise MalformedMessage(f"request header: {count} tags, more than allowed or than bytes remain")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessage("request header: tag ends outside the frame")
    return position


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole frame, its length included."""
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if request_header_version(key, version) == 2:
        header += b"\0"
    return b"".join((_LENGTH.pack(len(header) + len(body)), header, body))


def response_start(key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """The length and header that go before a response body of so many bytes."""
    if key in API and response_header_version(key, version) == 1:
        return _RESPONSE_V1.pack(body_bytes + 5, correlation_id)
    return _RESPONSE_V0.pack(body_bytes + 4, correlation_id)


def encode_response(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole frame, its length included."""
    return response_start(key, version, correlation_id, len(body)) + body


def decode_response_header(key: int, version: int, frame: bytes | memoryview) -> tuple[int, int]:
    """The correlation id, and where in the frame the message begins."""
    try:
        correlation_id: int = _LENGTH.unpack_from(frame)[0]
        if response_header_version(key, version) == 0:
            return correlation_id, LENGTH_SIZE
        return correlation_id, _skip_tags(frame, LENGTH_SIZE)
    except (error, IndexError) as problem:
        raise MalformedMessage(f"response header: {problem}") from problem
