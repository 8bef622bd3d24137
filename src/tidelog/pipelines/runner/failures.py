"""What to say of an error that came through Spark, whether to try again, and when. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*): (.*)$")
_RAISED_IN_JAVA: Final = re.compile(r"^: (?:[\w.$]+\.)?([A-Z]\w*)(?:: (.*))?$")
_CONDITION: Final = re.compile(r"^\[([A-Z_.0-9]+)\]\s*")
_FINAL_TYPES: Final = {
    "OptionError",
    "SchemaMismatch",
    "SchemaTooNew",
    "Refused",
    "UnreadableDecision",
    "Unreadable",
    "DataLost",
    "ForeignCheckpoint",
    "PipelineError",
    "RecordTooLarge",
}
_FINAL_IN_ONCE: Final = {"TopicMissing"}
"""What is not there may come: whoever runs for long can wait for it, but not who wants what there is by now."""
_REFUSALS: Final = re.compile(r"requirement failed:|AnalysisException|^\[(?:UNRESOLVED|UNSUPPORTED|DATATYPE_MISMATCH)")
"""Spark has read the query, and does not run such ones."""
_CHECKPOINT: Final = re.compile(
    r"\[(?:STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_INVALID_CONFIG_AFTER_RESTART|"
    r"STREAMING_STATEFUL_OPERATOR_(?:NOT_MATCH_IN_STATE_METADATA|MISSING_STATE_DIRECTORY)|"
    r"STREAMING_CHECKPOINT_MISSING_METADATA_FILE)|sources in the checkpoint offsets and now there are"
)
"""The checkpoint is that of a query which was another, or is not whole."""
_HOPELESS: Final = re.compile(
    r"malformed record in |row without a key for |No suitable driver|\b(?:INVALID_TOPIC_EXCEPTION|INVALID_RECORD)\b"
)
"""What was raised stays like that, by whatever name it was."""
_HINTS: Final = (
    (_CHECKPOINT, "; a sink that was changed so much needs another name, or its pipeline a reset"),
    (re.compile("No suitable driver"), ": name the jar that has it with --conf spark.jars=..., or option driver"),
)
_SHOWN_CHARS: Final = 500


def explain(text: str) -> str:
    """One line: what was raised in Python if anything was, else what Spark says, without its wrapping."""
    said = re.sub(r"\s*SQLSTATE: \w+.*$", "", _said(text))
    hint = next((hint for pattern, hint in _HINTS if pattern.search(text)), "")
    return f"{_short(said.removesuffix('.') if hint else said)}{hint}"


def _said(text: str) -> str:
    raised = _raised(text)
    if raised is not None:
        return f"{raised[0]}: {_CONDITION.sub('', raised[1])}"
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    for wrapped in ("terminated with exception: ", "aborted due to stage failure: "):
        if wrapped in text:
            line = text.rpartition(wrapped)[2].strip().splitlines()[0].strip()
            break
    return _CONDITION.sub("", line)


def is_final(text: str, *, once: bool = False) -> bool:
    """Whether trying again cannot help. `once`: the pipeline is to end when all that there is has been read."""
    raised = _raised(text)
    if raised is not None:
        return (
            raised[0] in _FINAL_TYPES
            or (once and raised[0] in _FINAL_IN_ONCE)
            or _HOPELESS.search(f"{raised[0]}: {raised[1]}") is not None
        )
    return any(pattern.search(text) is not None for pattern in (_REFUSALS, _CHECKPOINT, _HOPELESS))


def _raised(text: str) -> tuple[str, str] | None:
    """The last error of the innermost Python traceback in it."""
    _, found, trace = text.rpartition("Traceback (most recent call last):")
    if not found:
        return None
    lines = trace.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        match = _RAISED.match(line.rstrip())
        if match is not None:
            # What py4j raises says only that Java did, and what, in the next line.
            in_java = _RAISED_IN_JAVA.match(after.rstrip()) if match[1] == "Py4JJavaError" else None
            return (match[1], match[2]) if in_java is None else (in_java[1], in_java[2] or "no reason given")
        if re.match(r"^[A-Z]\w*(Error|Exception)$", line.rstrip()):
            return line.rstrip(), "no reason given"
    return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double, and a count of failures in a row after which it is no use."""

    first_s: float = 1.0
    longest_s: float = 60.0
    tries_max: int = 10

    def wait_s(self, failures: int) -> float | None:
        """After the n-th failure in a row; None: give up."""
        if failures > self.tries_max:
            return None
        return float(min(self.first_s * 2.0 ** (failures - 1), self.longest_s))
