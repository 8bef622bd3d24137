"""Finds the relations in a piece of SQL: the names that stand where rows come from. Pure, and no parser: it knows just
enough of Spark's grammar to tell them from columns, aliases and functions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN: Final = re.compile(
    r"""(?P<noise>--[^\n]*|/\*.*?\*/|\s+)
    |(?P<text>\b[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<other>\|>|\w+|.)""",
    re.DOTALL | re.VERBOSE,
)
_OWN_FROM: Final = frozenset({"extract", "trim", "substring", "substr", "overlay"})
"""FROM in their brackets is part of the call, as in EXTRACT(day FROM at)."""
_ENDS_LIST: Final = frozenset(
    [
        "where",
        "group",
        "having",
        "order",
        "sort",
        "cluster",
        "distribute",
        "limit",
        "offset",
        "window",
        "qualify",
        "union",
        "except",
        "intersect",
        "minus",
        "select",
        "values",
        "lateral",
        "|>",
    ]
)
"""Commas behind these do not lead to a further relation."""
_AFTER: Final = {"relation": "comma", "single": ""}
_BEFORE_TABLE: Final = frozenset({"", "(", "union", "all", "except", "intersect", "minus"})


@dataclass
class _Brackets:
    """What is between two brackets, or the whole."""

    call: str = ""
    """The function whose arguments these are."""
    expects: str = ""
    """What may come next: a `relation`, a `single` one, a `comma` before a further one; in WITH the `name` of a query,
    `as`, its `body`, or `more` of them."""
    naming: str = ""
    """The query in WITH that is being defined."""
    recursive: bool = False
    defined: set[str] = field(default_factory=set)


def relations(sql: str) -> Iterator[str]:
    """As they are written, without backticks. Left out are those that WITH defines, functions, and those of a catalog,
    which have dots in their names."""
    tokens = list(_tokens(sql))
    stack = [_Brackets()]
    before = ""
    for at, (token, is_name) in enumerate(tokens):
        after = tokens[at + 1][0].lower() if at + 1 < len(tokens) else ""
        now = stack[-1]
        word = token.lower()
        if word == "(":
            stack.append(_opened(now, before))
        elif word == ")":
            if len(stack) > 1:
                stack.pop()
                _closed(stack[-1])
        elif before == ".":
            pass  # a part of a longer name, whatever it is
        elif now.expects in _AFTER and is_name and not _leads_on(word, before, after):
            now.expects = _AFTER[now.expects]
            name = token.strip("`").replace("``", "`")
            if after not in {".", "("} and not any(name.lower() in each.defined for each in stack):
                yield name
        else:
            _step(now, word, before, after)
        before = word


def _tokens(sql: str) -> Iterator[tuple[str, bool]]:
    """Each with whether it can be a name. Comments are left out, texts lose what is in them."""
    for match in _TOKEN.finditer(sql):
        if match.lastgroup == "text":
            yield "''", False
        elif match.lastgroup != "noise":
            yield match[0], match.lastgroup in {"quoted", "word"}


def _leads_on(word: str, before: str, after: str) -> bool:
    """Whether this is not yet the relation that is expected, or shows that there is a query instead."""
    starts_query = before == "(" and word in {"with", "from", "table"}
    return starts_query or word in {"select", "values", "lateral"} or (word in {"stream", "table"} and after == "(")


def _opened(now: _Brackets, before: str) -> _Brackets:
    if now.expects in _AFTER:
        now.expects = _AFTER[now.expects]
        return _Brackets(expects="relation")
    if now.expects == "body":
        if now.recursive:
            now.defined.add(now.naming)
        return _Brackets()
    return _Brackets(call=before)


def _closed(now: _Brackets) -> None:
    if now.expects == "body":
        now.defined.add(now.naming)
        now.expects = "more"


def _step(now: _Brackets, word: str, before: str, after: str) -> None:
    """What a token that is not itself a relation says about those to come."""
    if now.expects == "name":
        if word == "recursive" and after not in {"as", "("}:
            now.recursive = True
        else:
            now.naming, now.expects = word.strip("`"), "as"
    elif now.expects == "as":
        now.expects = "body" if word == "as" else "as"
    elif (now.expects == "more" and word == ",") or (word == "with" and before in {"", "("}):
        now.expects = "name"
    elif word == "join" or (word == "from" and before != "distinct" and now.call not in _OWN_FROM):
        now.expects = "relation"  # IS DISTINCT FROM compares
    elif word == "table" and now.expects != "relation" and (before in _BEFORE_TABLE or after == "("):
        now.expects = "single"
    elif word == "," and now.expects == "comma":
        now.expects = "relation"
    elif word in {"lateral", "stream", "table"} and now.expects == "relation":
        pass
    elif word in _ENDS_LIST or now.expects != "comma":
        now.expects = ""
