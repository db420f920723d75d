"""Tables to decode functions.

The bytes are untrusted. Reads of fixed-size values past the end raise `struct.error` or `IndexError` by themselves,
which `schema.decode` translates; what Python would forgive (slices) or obey (counts) is checked here, before anything
is allocated: a slice must end inside the message and a count must fit into the bytes that remain.

Bytes are not the only cost: a frame of 100 MiB may hold 100 million empty strings, and decoding holds up every other
connection meanwhile. So the elements of all arrays of a message, and its tags, are counted against one limit too.
"""

from collections.abc import Callable
from struct import Struct, calcsize, unpack_from
from typing import Any

from tidelog.errors import MalformedMessage
from tidelog.wire.codegen import Source
from tidelog.wire.layout import Field, Message, element_size_min, fields_of, has_opaque
from tidelog.wire.primitives import finish_uvarint, read_uvarint, uuid_of

Decoder = Callable[[bytes | memoryview, int], tuple[Any, int]]

TAG_SIZE_MIN = 2  # number and size
SMALL_ARRAY = 9
ELEMENTS_MAX = 1_000_000  # under a second of work; ten thousand partitions with all their replicas are a tenth of it
STRING_MAX = 0x7FFF  # Kafka's, also where the encoding has room for more: names become keys, and are hashed and kept


def compile_decoder(message: type[Message], version: int, flexible: bool) -> Decoder:
    """A function (buffer, position) -> (message, position after it)."""
    return _DecoderSource(message, version, flexible).compile()


class _DecoderSource(Source):
    def __init__(self, message: type[Message], version: int, flexible: bool) -> None:
        super().__init__()
        self._message = message
        self._version = version
        self._flexible = flexible
        # Slices of a memoryview are not copies, which record batches need; for everything else bytes are faster.
        self._zero_copy = has_opaque(message)
        self._pending: list[tuple[str, str]] = []
        self._after: list[str] = []
        self.globals |= {
            "MalformedMessage": MalformedMessage,
            "finish_uvarint": finish_uvarint,
            "read_uvarint": read_uvarint,
            "unpack_from": unpack_from,
            "uuid_of": uuid_of,
        }

    def compile(self) -> Decoder:
        self.add("end = len(buf)")
        self.add("elements = 0")
        value = self._struct(self._message)
        self.add(f"return {value}, pos")
        return self.function("decode(buf, pos)", f"decode {self._message.__name__} v{self._version}")

    def _read(self, format: str, variable: str) -> None:
        self._pending.append((format, variable))

    def _flush(self) -> None:
        """Emit one read for all fixed-size values since the last variable-size one."""
        if not self._pending:
            return
        formats = "".join(format for format, _ in self._pending)
        targets = ", ".join(variable for _, variable in self._pending)
        if formats == "B":
            self.add(f"{targets} = buf[pos]")
        else:
            self.add(f"{targets}, = {self.struct_method(formats, 'unpack_from')}(buf, pos)")
        self.add(f"pos += {calcsize('>' + formats)}")
        self._pending.clear()
        for line in self._after:
            self.add(line)
        self._after.clear()

    def _refuse(self, condition: str, what: str) -> None:
        with self.block(f"if {condition}:"):
            self.add(f"raise MalformedMessage({what!r})")

    def _count(self, more: str) -> None:
        self.add(f"elements += {more}")
        self._refuse(f"elements > {ELEMENTS_MAX}", f"{self._message.__name__}: more than {ELEMENTS_MAX:,} elements")

    def _struct(self, message: type[Message]) -> str:
        """Read all fields of a struct; the expression that builds it."""
        present = [field for field in fields_of(message) if field.present(self._version)]
        values: dict[str, str] = {}
        for field in present:
            if field.tag is None:
                values[field.name] = self._field(field, message)
        if self._flexible:
            tagged = [field for field in present if field.tag is not None]
            count = self.variable("tags")
            self._read("B", count)
            self._flush()
            values |= self._tags(tagged, count, message)
        self._flush()
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{self.constant(message, message.__name__)}({arguments})"

    def _field(self, field: Field, owner: type[Message]) -> str:
        where = f"{owner.__name__}.{field.name}"
        if field.is_array:
            return self._array(field, where)
        return self._element(field, where, field.nullable(self._version))

    def _element(self, field: Field, where: str, nullable: bool) -> str:
        value = self.variable(field.name)
        if field.format is not None:
            self._read(field.format, value)
            if field.is_uuid:
                self._after.append(f"{value} = uuid_of({value})")
        elif field.struct is not None:
            self._inner_struct(field.struct, value, nullable, tagged=field.tag is not None)
        else:
            self._sized(field, value, where, nullable)
        return value

    def _inner_struct(self, struct: type[Message], value: str, nullable: bool, tagged: bool) -> None:
        if not nullable:
            self.add_after_flush(f"{value} = {self._struct(struct)}")
            return
        marker = self.variable("marker")
        self._read("b", marker)
        self._flush()
        with self.block(f"if {marker} {'<= 0' if tagged else '< 0'}:"):  # see the encoder
            self.add(f"{value} = None")
        with self.block("else:"):
            self.add_after_flush(f"{value} = {self._struct(struct)}")

    def add_after_flush(self, line: str) -> None:
        self._flush()
        self.add(line)

    def _length(self, legacy_format: str, long: bool = False) -> tuple[str, str]:
        """Read a length prefix; the variable holding it and the number that it holds for null.

        Nearly all lengths fit one byte. A record batch's is usually two bytes long, so that is inline as well.
        """
        length = self.variable("n")
        self._read("B" if self._flexible else legacy_format, length)
        self._flush()
        if self._flexible:
            with self.block(f"if {length} > 127:"):
                if long:
                    with self.block("if buf[pos] < 128:"):
                        self.add(f"{length} += (buf[pos] << 7) - 128")
                        self.add("pos += 1")
                    with self.block("else:"):
                        self.add(f"{length}, pos = finish_uvarint(buf, pos, {length})")
                else:
                    self.add(f"{length}, pos = finish_uvarint(buf, pos, {length})")
            return length, "0"
        return length, "-1"

    def _sized(self, field: Field, value: str, where: str, nullable: bool) -> None:
        """A string or opaque bytes."""
        length, null = self._length("h" if field.is_string else "i", long=field.is_opaque)
        if field.is_string and self._flexible:
            self._refuse(f"{length} > {STRING_MAX + 1}", f"{where}: a string of more than {STRING_MAX:,} bytes")
        if nullable:
            with self.block(f"if {length} == {null}:"):
                self.add(f"{value} = None")
            with self.block("else:"):
                self._slice(field, value, length, where)
        else:
            self._slice(field, value, length, where)

    def _slice(self, field: Field, value: str, length: str, where: str) -> None:
        self.add(f"stop = pos + {length} - 1" if self._flexible else f"stop = pos + {length}")
        self._refuse("not pos <= stop <= end", f"{where}: length outside the message")
        if not field.is_string:
            self.add(f"{value} = buf[pos:stop]")
        elif self._zero_copy:
            self.add(f"{value} = str(buf[pos:stop], 'utf-8')")
        else:
            self.add(f"{value} = buf[pos:stop].decode()")
        self.add("pos = stop")

    def _array(self, field: Field, where: str) -> str:
        value = self.variable(field.name)
        count, null = self._length("i")
        if field.nullable(self._version):
            with self.block(f"if {count} == {null}:"):
                self.add(f"{value} = None")
            with self.block("else:"):
                self._array_body(field, value, count, where)
        else:
            self._array_body(field, value, count, where)
        return value

    def _array_body(self, field: Field, value: str, count: str, where: str) -> None:
        if self._flexible:
            self.add(f"{count} -= 1")
        smallest = element_size_min(field, self._version, self._flexible)
        room = "end - pos" if smallest == 1 else f"(end - pos) // {smallest}"
        self._refuse(f"not 0 <= {count} <= {room}", f"{where}: count exceeds the bytes that remain")
        self._count(count)
        if field.format is not None and not field.is_uuid:
            self._fixed_array(field.format, value, count)
            self.add(f"pos += {count} * {smallest}")
            return
        items = self.variable("items")
        self.add(f"{items} = []")
        with self.block(f"for _ in range({count}):"):
            if field.struct is not None:
                item = self._struct(field.struct)
            else:
                item = self._element(field, where, nullable=False)
            self._flush()
            self.add(f"{items}.append({item})")
        self.add(f"{value} = tuple({items})")

    def _fixed_array(self, format: str, value: str, count: str) -> None:
        readers = f"unpack_array_{format.replace('?', 'o')}"
        if readers not in self.globals:
            self.globals[readers] = [Struct(f">{n}{format}").unpack_from for n in range(SMALL_ARRAY)]
        with self.block(f"if {count} < {SMALL_ARRAY}:"):
            self.add(f"{value} = {readers}[{count}](buf, pos)")
        with self.block("else:"):
            self.add(f"{value} = unpack_from('>%d{format}' % {count}, buf, pos)")

    def _tags(self, tagged: list[Field], count: str, owner: type[Message]) -> dict[str, str]:
        """Read the tagged section, skipping tags from the future."""
        values = {field.name: self.variable(field.name) for field in tagged}
        for field in tagged:
            self.add(f"{values[field.name]} = {self.constant(field.default, 'default')}")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.add(f"{count}, pos = finish_uvarint(buf, pos, {count})")
            self._refuse(f"{count} > (end - pos) // {TAG_SIZE_MIN}", f"{owner.__name__}: more tags than bytes remain")
            self._count(count)
            tag, size, after = self.variable("tag"), self.variable("size"), self.variable("after")
            with self.block(f"for _ in range({count}):"):
                self.add(f"{tag}, pos = read_uvarint(buf, pos)")
                self.add(f"{size}, pos = read_uvarint(buf, pos)")
                self.add(f"{after} = pos + {size}")
                self._refuse(f"{after} > end", f"{owner.__name__}: tag ends outside the message")
                for field in tagged:
                    with self.block(f"if {tag} == {field.tag}:"):
                        read = self._field(field, owner)
                        self._flush()
                        self.add(f"{values[field.name]} = {read}")
                        self._refuse(f"pos != {after}", f"{owner.__name__}.{field.name}: tag of the wrong size")
                self.add(f"pos = {after}")
        return values
