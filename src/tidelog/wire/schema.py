"""The protocol as a registry of tables, and the two functions that use it: `encode` and `decode`.

The registry says what this room can read and write. What the broker answers is narrower and is decided where handlers
register themselves.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.errors import ErrorCode, KafkaError, MalformedMessage
from tidelog.wire.decoder import Decoder, compile_decoder
from tidelog.wire.encoder import Encoder, UnencodableMessage, compile_encoder
from tidelog.wire.layout import IGNORABLE, NEWEST, Message, Nullable, Tag, Versions, has_opaque

__all__ = [
    "API",
    "IGNORABLE",
    "NEVER",
    "ApiSpec",
    "Message",
    "Nullable",
    "Tag",
    "UnencodableMessage",
    "UnsupportedVersion",
    "Versions",
    "answers",
    "api",
    "decode",
    "decode_prefix",
    "encode",
    "request_header_version",
    "response_header_version",
    "spec_of",
    "stored",
]

M = TypeVar("M", bound=Message)

NEVER: Final = NEWEST + 1  # the first flexible version of an API that has none
API_VERSIONS_KEY: Final = 18


class UnsupportedVersion(KafkaError):
    code = ErrorCode.UNSUPPORTED_VERSION

    def __init__(self, name: str, version: int, low: int, high: int) -> None:
        super().__init__(f"{name} version {version} is outside [{low}, {high}]")


class ApiSpec(NamedTuple):
    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min: int
    max: int
    flexible: int  # first version with compact lengths and tagged fields

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


API: Final[dict[int, ApiSpec]] = {}

_spec_of: dict[type[Message], ApiSpec] = {}
_decoders: dict[tuple[type[Message], int], tuple[Decoder, bool]] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def api(*, key: int, versions: tuple[int, int], flexible: int) -> Callable[[type[M]], type[M]]:
    """Declares a request; its response is the class that `answers` it."""

    def register(request: type[M]) -> type[M]:
        if key in API:
            raise ValueError(f"API key {key} is declared twice")
        name = request.__name__.removesuffix("Request")
        spec = ApiSpec(key, name, request, request, *versions, flexible)
        API[key] = _spec_of[request] = spec
        return request

    return register


def answers(request: type[Message]) -> Callable[[type[M]], type[M]]:
    def register(response: type[M]) -> type[M]:
        spec = _spec_of[request]._replace(response=response)
        API[spec.key] = _spec_of[request] = _spec_of[response] = spec
        return response

    return register


def stored(*, versions: tuple[int, int], flexible: int) -> Callable[[type[M]], type[M]]:
    """Declares a struct that is written to a log, not sent: it has versions like a message but no API key."""

    def register(kind: type[M]) -> type[M]:
        _spec_of[kind] = ApiSpec(-1, kind.__name__, kind, kind, *versions, flexible)
        return kind

    return register


def spec_of(message: type[Message]) -> ApiSpec:
    return _spec_of[message]


def request_header_version(key: int, version: int) -> int:
    return 2 if API[key].is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    # A client that does not know our versions yet must be able to read this one answer.
    if key == API_VERSIONS_KEY:
        return 0
    return 1 if API[key].is_flexible(version) else 0


def encode(message: Message, version: int) -> bytes:
    """The body without its header. Raises UnencodableMessage for values that this version has no room for."""
    kind = type(message)
    encoder = _encoders.get((kind, version))
    if encoder is None:
        encoder = _encoders[kind, version] = _compile(compile_encoder, kind, version)
    try:
        return encoder(message)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError) as error:
        raise UnencodableMessage(f"{kind.__name__} version {version}: {error}") from error


def decode(message: type[M], version: int, buffer: bytes | bytearray | memoryview, offset: int = 0) -> M:
    """Reads one message starting at `offset`. Bytes after it are ignored, as Kafka does.

    `bytes` fields and record sets are memoryviews into `buffer`, which must not change while they live. Whatever the
    bytes, the only error is MalformedMessage.
    """
    return decode_prefix(message, version, buffer, offset)[0]


def decode_prefix(
    message: type[M], version: int, buffer: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[M, int]:
    """Like `decode`, and says at which position of `buffer` the message ended."""
    known = _decoders.get((message, version))
    if known is None:
        known = _compile(compile_decoder, message, version), has_opaque(message)
        _decoders[message, version] = known
    decoder, zero_copy = known
    try:
        if zero_copy:
            return decoder(memoryview(buffer), offset)
        if type(buffer) is bytes:
            return decoder(buffer, offset)
        # Without slices to hand out, one copy pays for itself: indexing bytes is faster than indexing a memoryview.
        decoded, end = decoder(bytes(memoryview(buffer)[offset:]), 0)
        return decoded, end + offset
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{message.__name__} version {version}: {error}") from error


def _compile(compiler: Callable[[type[Message], int, bool], Any], message: type[Message], version: int) -> Any:
    spec = _spec_of[message]
    if not spec.min <= version <= spec.max:
        raise UnsupportedVersion(message.__name__, version, spec.min, spec.max)
    return compiler(message, version, spec.is_flexible(version))
