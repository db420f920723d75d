"""Tables to encode functions: they fill a list of byte strings and join it once."""

from collections.abc import Callable
from struct import Struct, pack
from typing import Any, Final

import msgspec

from tidelog.wire.codegen import Source
from tidelog.wire.layout import Field, Message, fields_of
from tidelog.wire.primitives import ONE_BYTE, uvarint

SMALL_ARRAY: Final = 9

Encoder = Callable[[Any], bytes]


class UnencodableMessage(ValueError):
    """A message of ours that this version cannot say: a bug or an impossible request, never the peer's fault."""


def compile_encoder(message: type[Message], version: int, flexible: bool) -> Encoder:
    return _EncoderSource(message, version, flexible).compile()


class _EncoderSource(Source):
    def __init__(self, message: type[Message], version: int, flexible: bool) -> None:
        super().__init__()
        self._message = message
        self._version = version
        self._flexible = flexible
        self._pending: list[tuple[str, str]] = []
        self._append = "add"
        self.globals |= {
            "UnencodableMessage": UnencodableMessage,
            "one_byte": ONE_BYTE,
            "pack": pack,
            "uvarint": uvarint,
        }

    def compile(self) -> Encoder:
        self.add("out = []")
        self.add("add = out.append")
        self._struct(self._message, "message")
        self._flush()
        self.add("return b''.join(out)")
        return self.function("encode(message)", f"encode {self._message.__name__} v{self._version}")

    def _write(self, format: str, expression: str) -> None:
        self._pending.append((format, expression))

    def _packed(self, values: list[tuple[str, str]]) -> str:
        formats = "".join(format for format, _ in values)
        if formats == "B":
            return f"one_byte[{values[0][1]}]"
        arguments = ", ".join(expression for format, expression in values if format != "x")
        return f"{self.struct_method(formats, 'pack')}({arguments})"

    def _flush(self) -> None:
        """Emit one write for all fixed-size values since the last variable-size one."""
        if all(format == "x" for format, _ in self._pending):
            if self._pending:
                self.add(f"{self._append}({bytes(len(self._pending))!r})")
        else:
            self.add(f"{self._append}({self._packed(self._pending)})")
        self._pending.clear()

    def _write_length(self, length: str, legacy_format: str) -> None:
        """Write a length with what is pending; `length` is already one more than the size in flexible versions."""
        if not self._flexible:
            self._write(legacy_format, length)
            self._flush()
            return
        # A one-byte varint is a byte like any other: it joins the run. Longer ones are rare.
        before = list(self._pending)
        with self.block(f"if {length} < 128:"):
            self._write("B", length)
            self._flush()
        with self.block("else:"):
            self._pending = before
            self._flush()
            self.add(f"{self._append}(uvarint({length}))")

    def _struct(self, message: type[Message], value: str) -> None:
        present = []
        for field in fields_of(message):
            if field.present(self._version) and (field.tag is None or self._flexible):
                present.append(field)
            elif not field.ignorable and field.default is not msgspec.NODEFAULT:
                self._require_default(field, message, value)
        for field in present:
            if field.tag is None:
                self._field(field, f"{value}.{field.name}")
        if self._flexible:
            self._tags([field for field in present if field.tag is not None], value)

    def _require_default(self, field: Field, owner: type[Message], value: str) -> None:
        default = self.constant(field.default, "default")
        with self.block(f"if {value}.{field.name} != {default}:"):
            what = f"{owner.__name__}.{field.name} cannot be expressed in version {self._version}"
            self.add(f"raise UnencodableMessage({what!r})")

    def _field(self, field: Field, expression: str) -> None:
        if field.is_array:
            self._array(field, expression)
        else:
            self._element(field, expression, field.nullable(self._version))

    def _element(self, field: Field, expression: str, nullable: bool) -> None:
        if field.format is not None:
            self._write(field.format, f"{expression}.bytes" if field.is_uuid else expression)
        elif field.struct is not None:
            self._inner_struct(field.struct, expression, nullable, tagged=field.tag is not None)
        else:
            self._sized(field, expression, nullable)

    def _inner_struct(self, struct: type[Message], expression: str, nullable: bool, tagged: bool) -> None:
        value = self.variable("struct")
        self.add(f"{value} = {expression}")
        if not nullable:
            self._struct(struct, value)
            return
        self._flush()
        with self.block(f"if {value} is None:"):
            # Kafka marks a missing struct by -1 in a byte, but inside a tag by the varint 0.
            null = b"\0" if tagged else b"\xff"
            self.add(f"{self._append}({null!r})")
        with self.block("else:"):
            self._write("b", "1")
            self._struct(struct, value)
            self._flush()

    def _sized(self, field: Field, expression: str, nullable: bool) -> None:
        data, length = self.variable("data"), self.variable("n")
        one_more = " + 1" if self._flexible else ""
        encode = ".encode()" if field.is_string else ""
        if nullable:
            self.add(f"{data} = {expression}")
            with self.block(f"if {data} is None:"):
                self.add(f"{data} = b''")
                self.add(f"{length} = {0 if self._flexible else -1}")
            with self.block("else:"):
                if encode:
                    self.add(f"{data} = {data}{encode}")
                self.add(f"{length} = len({data}){one_more}")
        else:
            self.add(f"{data} = {expression}{encode}")
            self.add(f"{length} = len({data}){one_more}")
        self._write_length(length, "h" if field.is_string else "i")
        self.add(f"{self._append}({data})")

    def _array(self, field: Field, expression: str) -> None:
        items, count = self.variable("items"), self.variable("n")
        self.add(f"{items} = {expression}")
        if field.nullable(self._version):
            with self.block(f"if {items} is None:"):
                self.add(f"{items} = ()")
                self.add(f"{count} = {0 if self._flexible else -1}")
            with self.block("else:"):
                self.add(f"{count} = len({items}){' + 1' if self._flexible else ''}")
        else:
            self.add(f"{count} = len({items}){' + 1' if self._flexible else ''}")
        if field.format is not None and not field.is_uuid:
            self._fixed_array(field.format, items, count)
            return
        self._write_length(count, "i")
        item = self.variable("item")
        with self.block(f"for {item} in {items}:"):
            if field.struct is not None:
                self._struct(field.struct, item)
            else:
                self._element(field, item, nullable=False)
            self._flush()

    def _fixed_array(self, format: str, items: str, count: str) -> None:
        """Replica lists are most of a Metadata answer and short: their packers, count included, are made beforehand."""
        self._flush()
        count_format = "B" if self._flexible else "i"
        packers = f"pack_{count_format}_{format.replace('?', 'o')}"
        if packers not in self.globals:
            self.globals[packers] = [Struct(f">{count_format}{n}{format}").pack for n in range(SMALL_ARRAY)]
        with self.block(f"if len({items}) < {SMALL_ARRAY}:"):
            self.add(f"{self._append}({packers}[len({items})]({count}, *{items}))")
        with self.block("else:"):
            self._write_length(count, "i")
            self.add(f"{self._append}(pack('>%d{format}' % len({items}), *{items}))")

    def _tags(self, tagged: list[Field], value: str) -> None:
        if not tagged:
            self._write("x", "")
            return
        self._flush()
        section = self.variable("section")
        self.add(f"{section} = []")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            tag_value = self.variable(field.name)
            self.add(f"{tag_value} = {value}.{field.name}")
            with self.block(f"if {tag_value} != {self.constant(field.default, 'default')}:"):
                self._tag(field, tag_value, section)
        with self.block(f"if {section}:"):
            self.add(f"{self._append}(uvarint(len({section})))")
            self.add(f"{self._append}(b''.join({section}))")
        with self.block("else:"):
            self.add(f"{self._append}(b'\\0')")

    def _tag(self, field: Field, tag_value: str, section: str) -> None:
        outer, body = self._append, self.variable("body")
        self._append = f"{body}.append"
        self.add(f"{body} = []")
        self._field(field, tag_value)
        self._flush()
        self.add(f"{body} = b''.join({body})")
        self.add(f"{section}.append({uvarint(field.tag or 0)!r} + uvarint(len({body})) + {body})")
        self._append = outer
