"""Turns one message's declaration, at one version, into the source of a flat encoder and a flat decoder.

Everything that can be decided beforehand is: which fields exist, which are compact, which neighbours of fixed width go
through one `struct` call. What is left at run time is straight-line code with one loop per list.

Decoders check every length against what is left before they slice or allocate. Encoders append to one bytearray;
records that stay in a file are noted as splices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidelog.wire.declare import Array, Field, Message, Scalar, Struct, WireType
from tidelog.wire.primitives import ARRAY_ELEMENTS_MAX

_WIDTHS = {"b": 1, "h": 2, "i": 4, "q": 8, "H": 2, "d": 8, "?": 1, "16s": 16}


@dataclass(slots=True)
class Source:
    """Lines under construction, the names they refer to, and the fixed-width fields not yet written out."""

    version: int
    flexible: bool
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    pending: list[tuple[str, str]] = field(default_factory=list)
    """(variable or expression, struct format) of neighbours that one pack or unpack will serve."""
    depth: int = 1
    counter: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}_{self.counter}"

    def constant(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def present(self, declared: Field) -> bool:
        return self.version in declared.placement.versions

    def tagged(self, declared: Field) -> bool:
        return self.present(declared) and self.version in declared.placement.tagged

    def nullable(self, declared: Field) -> bool:
        return self.version in declared.placement.nullable


def least_size(wire_type: WireType, source: Source) -> int:
    """The fewest bytes a value can take: what bounds a claimed list length."""
    match wire_type:
        case Array():
            return 1 if source.flexible else 4
        case Scalar():
            if wire_type.fixed:
                return _WIDTHS[wire_type.value]
            if source.flexible:
                return 1
            return 2 if wire_type is Scalar.STRING else 4
        case _:
            total = 1 if source.flexible else 0
            for declared in wire_type.FIELDS:
                if source.present(declared) and not source.tagged(declared):
                    nullable_struct = source.nullable(declared) and not isinstance(declared.type, Scalar | Array)
                    total += 1 if nullable_struct else least_size(declared.type, source)
            return max(total, 1)


# --- decoding -------------------------------------------------------------------------------------------------------


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    source = Source(version, version in cls.FLEXIBLE)
    result = _decode_struct(cls, source)
    _flush_unpack(source)
    source.line(f"return {result}, pos")
    return "def decode(buf, pos, end):\n" + "\n".join(source.lines) + "\n", source.names


def _flush_unpack(source: Source) -> None:
    if not source.pending:
        return
    targets = ", ".join(target for target, _ in source.pending)
    formats = "".join(code for _, code in source.pending)
    width = sum(_WIDTHS[code] for _, code in source.pending)
    unpack = f"unpack_{formats.replace('?', 'B_')}"
    source.names[unpack] = f">{formats}"
    source.line(f"{targets}, = {unpack}(buf, pos)")
    source.line(f"pos += {width}")
    source.pending.clear()


def _decode_struct(cls: type[Struct], source: Source) -> str:
    """Emits the decoding of one struct and gives the expression that builds it."""
    values: dict[str, str] = {}
    for declared in cls.FIELDS:
        if source.present(declared) and not source.tagged(declared):
            values[declared.name] = _decode_field(declared, source)
        else:
            values[declared.name] = _default_expression(declared, source)
    if source.flexible:
        _flush_unpack(source)
        _decode_tags(cls, values, source)
    constructor = source.constant(cls.__name__, cls)
    return f"{constructor}({', '.join(values[declared.name] for declared in cls.FIELDS)})"


def _default_expression(declared: Field, source: Source) -> str:
    if declared.default is None:
        return "None"
    if isinstance(declared.type, Array):
        return "[]"
    return source.constant("default", declared.default)


def _decode_field(declared: Field, source: Source) -> str:
    target = source.fresh(declared.name)
    nullable = source.nullable(declared)
    match declared.type:
        case Scalar() as scalar if scalar.fixed:
            source.pending.append((target, scalar.value))
        case Scalar() as scalar:
            _decode_sized(target, scalar, declared.name, source, nullable=nullable)
        case Array(item):
            _decode_array(target, item, declared.name, source, nullable=nullable)
        case struct:
            _decode_nested(target, struct, source, nullable=nullable, tagged=source.tagged(declared))
    return target


def _decode_length(target: str, source: Source, code: str) -> None:
    """Emits the reading of a length into `target`, -1 standing for null in both encodings."""
    if not source.flexible:
        source.pending.append((target, code))
        _flush_unpack(source)
        return
    _flush_unpack(source)
    _decode_uvarint(target, source)
    source.line(f"{target} -= 1")


def _decode_uvarint(target: str, source: Source) -> None:
    source.line(f"{target} = buf[pos]")
    source.line("pos += 1")
    source.line(f"if {target} > 127:")
    source.line(f"    {target}, pos = read_uvarint(buf, pos - 1)")


def _decode_sized(target: str, scalar: Scalar, name: str, source: Source, *, nullable: bool) -> None:
    length = source.fresh("n")
    _decode_length(length, source, "h" if scalar is Scalar.STRING else "i")
    source.line(f"if {length} < 0:")
    source.line(f"    {target} = None" if nullable else f"    raise null_refused({name!r})")
    source.line("else:")
    source.depth += 1
    source.line(f"stop = pos + {length}")
    source.line("if stop > end:")
    source.line(f"    raise too_short({length}, end - pos)")
    expression = {Scalar.STRING: "str(buf[pos:stop], 'utf-8')", Scalar.BYTES: "bytes(buf[pos:stop])"}
    source.line(f"{target} = {expression.get(scalar, 'buf[pos:stop]')}")
    source.line("pos = stop")
    source.depth -= 1


def _decode_array(target: str, item: WireType, name: str, source: Source, *, nullable: bool) -> None:
    count = source.fresh("n")
    _decode_length(count, source, "i")
    source.line(f"if {count} < 0:")
    source.line(f"    {target} = None" if nullable else f"    raise null_refused({name!r})")
    least = least_size(item, source)
    source.line(f"elif {count} * {least} > end - pos or {count} > {ARRAY_ELEMENTS_MAX}:")
    source.line(f"    raise bad_count({count}, end - pos)")
    source.line("else:")
    source.depth += 1
    if isinstance(item, Scalar) and item.fixed:
        source.line(
            f"{target} = list(unpack_from(f'>{{{count}}}{item.value}', buf, pos))"
            if item is not Scalar.UUID
            else f"{target} = [bytes(buf[pos + at:pos + at + 16]) for at in range(0, {count} * 16, 16)]"
        )
        source.line(f"pos += {count} * {_WIDTHS[item.value]}")
    else:
        source.line(f"{target} = []")
        source.line(f"for _ in range({count}):")
        source.depth += 1
        if isinstance(item, Scalar):
            element = source.fresh("item")
            _decode_sized(element, item, name, source, nullable=False)
        else:
            assert not isinstance(item, Array), "Kafka nests lists only through structs"
            element = _decode_struct(item, source)
            _flush_unpack(source)
        source.line(f"{target}.append({element})")
        source.depth -= 1
    source.depth -= 1


def _decode_nested(target: str, struct: type[Struct], source: Source, *, nullable: bool, tagged: bool) -> None:
    if not nullable:
        expression = _decode_struct(struct, source)
        _flush_unpack(source)
        source.line(f"{target} = {expression}")
        return
    presence = source.fresh("present")
    source.pending.append((presence, "b"))
    _flush_unpack(source)
    # KIP-893 marks a null struct with -1; as a tagged field Kafka marks it with 0 instead.
    source.line(f"if {presence} < {1 if tagged else 0}:")
    source.line(f"    {target} = None")
    source.line("else:")
    source.depth += 1
    expression = _decode_struct(struct, source)
    _flush_unpack(source)
    source.line(f"{target} = {expression}")
    source.depth -= 1


def _decode_tags(cls: type[Struct], values: dict[str, str], source: Source) -> None:
    tags = source.fresh("tags")
    known = [declared for declared in cls.FIELDS if source.tagged(declared)]
    if not known:
        source.line("if buf[pos]:")
        source.line(f"    {tags}, pos = read_uvarint(buf, pos)")
        source.line(f"    pos = skip_tags(buf, pos, {tags}, end)")
        source.line("else:")
        source.line("    pos += 1")
        return
    _decode_uvarint(tags, source)
    for declared in known:
        target = source.fresh(declared.name)
        source.line(f"{target} = {values[declared.name]}")
        values[declared.name] = target
    source.line(f"if {tags} > end - pos:")
    source.line(f"    raise bad_count({tags}, end - pos)")
    source.line(f"for _ in range({tags}):")
    source.depth += 1
    tag, size, stop = source.fresh("tag"), source.fresh("size"), source.fresh("stop")
    _decode_uvarint(tag, source)
    _decode_uvarint(size, source)
    source.line(f"{stop} = pos + {size}")
    source.line(f"if {stop} > end:")
    source.line(f"    raise too_short({size}, end - pos)")
    for declared in known:
        source.line(f"if {tag} == {declared.placement.tag}:")
        source.depth += 1
        decoded = _decode_field(declared, source)
        _flush_unpack(source)
        # Were a field let past its size, overlapping tags would make a small frame cost a lot of work.
        source.line(f"if pos != {stop}:")
        source.line(f"    raise wrong_tag_size({declared.name!r}, {size})")
        source.line(f"{values[declared.name]} = {decoded}")
        source.depth -= 1
    source.line(f"pos = {stop}")
    source.depth -= 1


# --- encoding -------------------------------------------------------------------------------------------------------


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    source = Source(version, version in cls.FLEXIBLE)
    _encode_struct(cls, "msg", source, strict=cls.IS_REQUEST)
    _flush_pack(source)
    source.line("return")
    return "def encode(msg, out, splices):\n" + "\n".join(source.lines) + "\n", source.names


def _flush_pack(source: Source) -> None:
    if not source.pending:
        return
    expressions = ", ".join(expression for expression, _ in source.pending)
    formats = "".join(code for _, code in source.pending)
    pack = f"pack_{formats.replace('?', 'B_')}"
    source.names[pack] = f">{formats}"
    source.line(f"out += {pack}({expressions})")
    source.pending.clear()


def _encode_struct(cls: type[Struct], value: str, source: Source, *, strict: bool) -> None:
    for declared in cls.FIELDS:
        if not source.present(declared):
            if strict and not declared.placement.ignorable:
                _refuse_unless_default(declared, value, source)
        elif not source.tagged(declared):
            _encode_field(declared, f"{value}.{declared.name}", source, strict=strict)
    if source.flexible:
        _encode_tags(cls, value, source, strict=strict)


def _refuse_unless_default(declared: Field, value: str, source: Source) -> None:
    source.line(f"if {_is_set(declared, f'{value}.{declared.name}', source)}:")
    source.line(f"    raise not_in_version({declared.name!r}, {source.version})")


def _is_set(declared: Field, expression: str, source: Source) -> str:
    """The condition under which a field differs from its default."""
    if declared.default is None:
        return f"{expression} is not None"
    if isinstance(declared.type, Array):
        return f"{expression} is None or len({expression})" if declared.placement.nullable.last >= 0 else expression
    default = source.constant("default", declared.default)
    if isinstance(declared.type, Scalar):
        return f"{expression} != {default}"
    return f"{expression} is not {default} and {expression} != {default}"


def _encode_field(declared: Field, expression: str, source: Source, *, strict: bool) -> None:
    nullable = source.nullable(declared)
    match declared.type:
        case Scalar() as scalar if scalar.fixed:
            source.pending.append((expression, scalar.value))
        case Scalar() as scalar:
            _encode_maybe_null(expression, scalar, source, nullable=nullable, strict=strict)
        case Array():
            _encode_maybe_null(expression, declared.type, source, nullable=nullable, strict=strict)
        case struct:
            null = 0 if source.tagged(declared) else 255
            _encode_nested(struct, expression, source, null=null if nullable else None, strict=strict)


def _encode_length(expression: str, source: Source, code: str) -> None:
    if not source.flexible:
        source.pending.append((expression, code))
        return
    _flush_pack(source)
    length = source.fresh("n")
    source.line(f"{length} = {expression} + 1")
    source.line(f"if {length} < 128:")
    source.line(f"    out.append({length})")
    source.line("else:")
    source.line(f"    write_uvarint(out, {length})")


def _encode_null(wire_type: WireType, source: Source) -> None:
    if source.flexible:
        source.line("out.append(0)")
    else:
        source.line("out += b'\\xff\\xff'" if wire_type is Scalar.STRING else "out += b'\\xff\\xff\\xff\\xff'")


def _encode_maybe_null(expression: str, wire_type: WireType, source: Source, *, nullable: bool, strict: bool) -> None:
    value = source.fresh("value")
    if nullable:
        _flush_pack(source)
    source.line(f"{value} = {expression}")
    if nullable:
        source.line(f"if {value} is None:")
        source.depth += 1
        _encode_null(wire_type, source)
        source.depth -= 1
        source.line("else:")
        source.depth += 1
    if isinstance(wire_type, Array):
        _encode_array(wire_type.item, value, source, strict=strict)
    else:
        assert isinstance(wire_type, Scalar)
        _encode_sized(wire_type, value, source)
    if nullable:
        _flush_pack(source)
        source.depth -= 1


def _encode_sized(scalar: Scalar, value: str, source: Source) -> None:
    if scalar is Scalar.STRING:
        source.line(f"{value} = {value}.encode()")
        _encode_length(f"len({value})", source, "h")
        _flush_pack(source)
        source.line(f"out += {value}")
        return
    if scalar is Scalar.BYTES:
        _encode_length(f"len({value})", source, "i")
        _flush_pack(source)
        source.line(f"out += {value}")
        return
    _flush_pack(source)
    source.line(f"spliced = not isinstance({value}, (bytes, bytearray, memoryview))")
    size = source.fresh("size")
    source.line(f"{size} = {value}.size if spliced else len({value})")
    _encode_length(size, source, "i")
    _flush_pack(source)
    source.line("if spliced:")
    source.line(f"    splices.append((len(out), {value}))")
    source.line("else:")
    source.line(f"    out += {value}")


def _encode_array(item: WireType, value: str, source: Source, *, strict: bool) -> None:
    _encode_length(f"len({value})", source, "i")
    _flush_pack(source)
    if isinstance(item, Scalar) and item.fixed and item is not Scalar.UUID:
        source.line(f"out += pack(f'>{{len({value})}}{item.value}', *{value})")
        return
    element = source.fresh("item")
    source.line(f"for {element} in {value}:")
    source.depth += 1
    before = len(source.lines)
    if item is Scalar.UUID:
        source.line(f"out += pack('>16s', {element})")
    elif isinstance(item, Scalar):
        _encode_sized(item, element, source)
    else:
        assert not isinstance(item, Array), "Kafka nests lists only through structs"
        _encode_struct(item, element, source, strict=strict)
        _flush_pack(source)
    if len(source.lines) == before:
        source.line("pass")
    source.depth -= 1


def _encode_nested(struct: type[Struct], expression: str, source: Source, *, null: int | None, strict: bool) -> None:
    """`null` is the byte that stands for a null struct, or None where there may be none."""
    value = source.fresh("nested")
    _flush_pack(source)
    source.line(f"{value} = {expression}")
    if null is None:
        _encode_struct(struct, value, source, strict=strict)
        return
    source.line(f"if {value} is None:")
    source.line(f"    out.append({null})")
    source.line("else:")
    source.depth += 1
    source.line("out.append(1)")
    _encode_struct(struct, value, source, strict=strict)
    _flush_pack(source)
    source.depth -= 1


def _encode_tags(cls: type[Struct], value: str, source: Source, *, strict: bool) -> None:
    known = sorted((f for f in cls.FIELDS if source.tagged(f)), key=lambda declared: declared.placement.tag)
    _flush_pack(source)
    if not known:
        source.line("out.append(0)")
        return
    flags = []
    for declared in known:
        flag = source.fresh("set")
        source.line(f"{flag} = bool({_is_set(declared, f'{value}.{declared.name}', source)})")
        flags.append(flag)
    source.line(f"write_uvarint(out, {' + '.join(flags)})")
    for declared, flag in zip(known, flags, strict=True):
        outer, inner = source.fresh("outer"), source.fresh("inner")
        source.line(f"if {flag}:")
        source.depth += 1
        source.line(f"{outer} = out")
        source.line(f"{inner} = out = bytearray()")
        _encode_field(declared, f"{value}.{declared.name}", source, strict=strict)
        _flush_pack(source)
        source.line(f"out = {outer}")
        source.line(f"write_uvarint(out, {declared.placement.tag})")
        source.line(f"write_uvarint(out, len({inner}))")
        source.line(f"out += {inner}")
        source.depth -= 1
