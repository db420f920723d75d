"""How a message table is written, and how it is read back.

A message is one frozen struct for all of its versions. Each field's annotation carries what the wire needs to know:

    class FetchTopic(Message, kw_only=True):
        topic: Annotated[str, Versions(0, 12), IGNORABLE] = ""
        topic_id: Annotated[TopicId, Versions(13), IGNORABLE] = NO_TOPIC_ID
        partitions: tuple[FetchPartition, ...]

A field without `Versions` is in every version of its message. `| None` makes it nullable, from the version that
`Nullable` names if only later versions allow null. A field absent from the version being written must hold its default,
unless it is `IGNORABLE`: then it is left out silently, as Kafka does.
"""

from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, dataclass_transform, get_args, get_origin
from uuid import UUID

import msgspec

from tidelog.wire.primitives import Fixed, Opaque

NEWEST: Final = 0x7FFF  # a version number is an i16


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Message(msgspec.Struct, frozen=True, gc=False):
    """Base of every message and of every struct inside one.

    Frozen values of scalars and tuples cannot form cycles, so the garbage collector need not know them. Tables repeat
    `kw_only`, which msgspec does not inherit; a metaclass that adds it makes every construction four times slower.
    """


class Versions(NamedTuple):
    first: int
    last: int = NEWEST


class Nullable(NamedTuple):
    since: int


class Tag(NamedTuple):
    """An optional field of flexible versions, written only when it differs from its default."""

    number: int


class Ignorable(NamedTuple):
    pass


IGNORABLE: Final = Ignorable()


class Field(NamedTuple):
    name: str
    format: str | None  # struct format of a fixed-size value, "16s" for a UUID
    is_string: bool
    is_opaque: bool
    struct: type[Message] | None
    is_array: bool
    versions: Versions
    nullable_since: int | None
    tag: int | None
    ignorable: bool
    default: Any  # msgspec.NODEFAULT for a field that must be given

    @property
    def is_uuid(self) -> bool:
        return self.format == UUID_FORMAT

    def present(self, version: int) -> bool:
        return self.versions.first <= version <= self.versions.last

    def nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


UUID_FORMAT: Final = "16s"


class _Parsed(NamedTuple):
    """An annotation taken apart: the bare type, whether `None` is allowed, and the marks around it."""

    bare: Any
    optional: bool
    marks: tuple[Any, ...]


def _parse(annotation: Any) -> _Parsed:
    if hasattr(annotation, "__supertype__"):  # a NewType
        return _parse(annotation.__supertype__)
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        bare, optional, inner_marks = _parse(inner)
        return _Parsed(bare, optional, (*inner_marks, *marks))
    if origin in (Union, UnionType) and NoneType in get_args(annotation):
        rest = tuple(arm for arm in get_args(annotation) if arm is not NoneType)
        bare, _, marks_of_arm = _parse(rest[0])
        # Several arms are left only for Opaque, whose mark and not whose type decides.
        return _Parsed(bare, True, marks_of_arm)
    return _Parsed(annotation, False, ())


def _field(name: str, annotation: Any, default: Any) -> Field:
    bare, optional, marks = _parse(annotation)
    is_array = get_origin(bare) is tuple
    element = _parse(get_args(bare)[0]) if is_array else _Parsed(bare, False, marks)
    fixed = next((mark.format for mark in element.marks if isinstance(mark, Fixed)), None)
    is_opaque = any(isinstance(mark, Opaque) for mark in element.marks)
    struct = element.bare if isinstance(element.bare, type) and issubclass(element.bare, Message) else None
    if element.bare is bool:
        fixed = "?"
    elif element.bare is UUID:
        fixed = UUID_FORMAT
    is_string = element.bare is str
    if not (fixed or is_opaque or struct or is_string):
        raise TypeError(f"field {name}: {annotation} has no wire format")
    nullable_since = next((mark.since for mark in marks if isinstance(mark, Nullable)), 0) if optional else None
    return Field(
        name=name,
        format=fixed,
        is_string=is_string,
        is_opaque=is_opaque,
        struct=struct,
        is_array=is_array,
        versions=next((mark for mark in marks if isinstance(mark, Versions)), Versions(0)),
        nullable_since=nullable_since,
        tag=next((mark.number for mark in marks if isinstance(mark, Tag)), None),
        ignorable=any(isinstance(mark, Ignorable) for mark in marks),
        default=default,
    )


@cache
def fields_of(message: type[Message]) -> tuple[Field, ...]:
    return tuple(_field(info.name, info.type, info.default) for info in msgspec.structs.fields(message))


def structs_within(message: type[Message]) -> Iterator[type[Message]]:
    """The message and every struct it contains, at any depth."""
    yield message
    for field in fields_of(message):
        if field.struct is not None:
            yield from structs_within(field.struct)


@cache
def has_opaque(message: type[Message]) -> bool:
    return any(field.is_opaque for struct in structs_within(message) for field in fields_of(struct))


@cache
def size_min(message: type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes this struct can take: what bounds an array's count by the bytes that remain."""
    present = [field for field in fields_of(message) if field.tag is None and field.present(version)]
    return sum(field_size_min(field, version, flexible) for field in present) + flexible


def field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    return element_size_min(field, version, flexible)


def element_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.format is not None:
        return fixed_size(field.format)
    if field.struct is not None:
        return 1 if field.nullable(version) else max(1, size_min(field.struct, version, flexible))
    if flexible:
        return 1
    return 2 if field.is_string else 4


def fixed_size(format: str) -> int:
    return {"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, UUID_FORMAT: 16}[format]
