"""Reads the regular expressions by which members of groups of the newer protocol subscribe to topics.

The syntax is RE2's, as far as it can tell topic names apart: no look-around and no back-references, since those cannot
be matched in a time bounded by the length of the name. Topic names have 65 characters, so that a class of characters
is the set of those it matches.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.errors import BrokerError, ErrorCode

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""What a topic name is made of."""

LENGTH_MAX = 4096
DEPTH_MAX = 100
REPEAT_MAX = 1000
"""RE2's own limit on counted repetition."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of the name."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the name."""


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Start | End

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE: frozenset[str] = frozenset()

_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE, "D": ALPHABET - _DIGITS, "W": ALPHABET - _WORD, "S": ALPHABET}

_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": _SPACE,
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _SPACE,
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(pattern: str) -> Node:
    """Raises BrokerError INVALID_REGULAR_EXPRESSION, which says what is wrong and where."""
    if len(pattern) > LENGTH_MAX:
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the pattern has {len(pattern)} characters: {LENGTH_MAX} is the most",
        )
    return _Reader(pattern).read()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._any_case = False

    def read(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise self._wrong("there is no ( for this )")
        return node

    # --- structure ---

    def _choice(self) -> Node:
        any_case = self._any_case  # a flag holds to the end of its group
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._any_case = any_case
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if self._take("\\Q"):
                end = self._pattern.find("\\E", self._at)
                literal = self._pattern[self._at : end] if end >= 0 else self._pattern[self._at :]
                self._at = end + 2 if end >= 0 else len(self._pattern)
                parts += [self._literal(character) for character in literal]
            else:
                parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._take("?")  # lazy or greedy makes no difference to whether a whole name matches
        if self._bounds() is not None:
            raise self._wrong("a repetition cannot be repeated: put it in parentheses")
        least, most = bounds
        if least > REPEAT_MAX or (most or 0) > REPEAT_MAX:
            raise self._wrong(f"more than {REPEAT_MAX} repetitions")
        if most is not None and most < least:
            raise self._wrong(f"a repetition from {least} down to {most}")
        return Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        end = self._pattern.find("}", self._at)
        if not self._pattern.startswith("{", self._at) or end < 0:
            return None
        least, comma, most = self._pattern[self._at + 1 : end].partition(",")
        if not (least.isascii() and least.isdigit()) or (most and not (most.isascii() and most.isdigit())):
            return None  # braces that count nothing stand for themselves
        if len(least) > 4 or len(most) > 4:
            raise self._wrong(f"more than {REPEAT_MAX} repetitions")
        self._at = end + 1
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    # --- atoms ---

    def _atom(self) -> Node:
        if self._take("("):
            return self._group()
        if self._take("["):
            return Chars(self._cased(self._bracket()))
        if self._take("\\"):
            return self._escaped_atom()
        if self._take("."):
            return Chars(ALPHABET)
        if self._take("^"):
            return Start()
        if self._take("$"):
            return End()
        if self._pattern[self._at] in "*+?":
            raise self._wrong("there is nothing to repeat")
        self._at += 1
        return self._literal(self._pattern[self._at - 1])

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"groups are nested more than {DEPTH_MAX} deep")
        if self._take("?") and not self._take(":"):
            flags = self._flags_or_name()
            if flags is not None:
                self._depth -= 1
                return flags
        node = self._choice()
        if not self._take(")"):
            raise self._wrong("a ( is never closed")
        self._depth -= 1
        return node

    def _flags_or_name(self) -> Node | None:
        """After "(?": a name, which changes nothing, or flags; None if a group's content follows."""
        if self._take("P<") or (self._take("<") and self._peek() not in "=!"):
            end = self._pattern.find(">", self._at)
            if end < 0 or not self._pattern[self._at : end].isidentifier():
                raise self._wrong("a group's name is not finished")
            self._at = end + 1
            return None
        turn_on = True
        any_case = self._any_case
        while (flag := self._peek()) not in {"", ":", ")"}:
            if flag == "i":
                any_case = turn_on
            elif flag == "-":
                turn_on = False
            elif flag not in "smU":
                raise self._wrong("only groups, names and the flags i, s, m and U can follow (?")
            self._at += 1
        if self._take(")"):
            self._any_case = any_case
            return Sequence(())
        self._at += 1
        outer, self._any_case = self._any_case, any_case
        node = self._choice()
        self._any_case = outer
        if not self._take(")"):
            raise self._wrong("a ( is never closed")
        return node

    def _escaped_atom(self) -> Node:
        if self._take("A"):
            return Start()
        if self._take("z"):
            return End()
        escaped = self._escape()
        return Chars(self._cased(escaped)) if isinstance(escaped, frozenset) else self._literal(escaped)

    def _escape(self) -> frozenset[str] | str:
        """What follows a backslash: a class of characters, or one character."""
        if self._at == len(self._pattern):
            raise self._wrong("a backslash at the end")
        character = self._pattern[self._at]
        self._at += 1
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character.isalnum():
            raise self._wrong(f"\\{character} is not understood")
        return character

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._pattern.find("}", self._at)
            digits = self._pattern[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._pattern[self._at : self._at + 2]
            self._at += 2
        well_formed = 0 < len(digits) <= 6 and all(digit in string.hexdigits for digit in digits)
        if not well_formed or int(digits, 16) > 0x10FFFF:
            raise self._wrong("\\x needs the number of a character in hexadecimal")
        return chr(int(digits, 16))

    # --- classes in brackets ---

    def _bracket(self) -> frozenset[str]:
        negated = self._take("^")
        allowed: set[str] = set()
        first = True
        while first or not self._take("]"):
            if self._at >= len(self._pattern):
                raise self._wrong("a [ is never closed")
            first = False
            if self._take("[:"):
                allowed |= self._posix()
                continue
            low = self._bracket_character()
            if isinstance(low, frozenset):
                allowed |= low
            elif self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                high = self._bracket_character()
                if isinstance(high, frozenset) or high < low:
                    raise self._wrong("a range of characters that is none")
                allowed |= {character for character in ALPHABET if low <= character <= high}
            else:
                allowed.add(low)
        allowed = set(self._cased(frozenset(allowed)))
        return ALPHABET - allowed if negated else ALPHABET & allowed

    def _bracket_character(self) -> frozenset[str] | str:
        if self._take("\\"):
            return self._escape()
        if self._at >= len(self._pattern):
            raise self._wrong("a [ is never closed")
        self._at += 1
        return self._pattern[self._at - 1]

    def _posix(self) -> frozenset[str]:
        end = self._pattern.find(":]", self._at)
        negated = self._take("^")
        known = _POSIX.get(self._pattern[self._at : max(end, self._at)])
        if known is None:
            raise self._wrong("a class of characters that is not known")
        self._at = end + 2
        return ALPHABET - known if negated else known

    # --- characters ---

    def _literal(self, character: str) -> Chars:
        return Chars(self._cased(frozenset(character)) & ALPHABET)

    def _cased(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._any_case:
            return characters
        return characters | {one.upper() for one in characters} | {one.lower() for one in characters}

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _wrong(self, what: str) -> BrokerError:
        return BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{what}, at character {self._at + 1} of the pattern {self._pattern!r}",
        )
