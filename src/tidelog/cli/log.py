"""`tidelog log`: looks into the files of a log directory, also those of a stopped or broken broker."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.output import human_bytes
from tidelog.cli.record_json import header_name, record_fields

if TYPE_CHECKING:
    from tidelog.cli.segment_files import Finding
    from tidelog.records.record import Record

_VALUE_SHOWN_MAX = 80
_ABSENT_IF_MINUS_ONE = frozenset(
    {"producer_id", "producer_epoch", "base_sequence", "transaction_first_offset", "coordinator_epoch"}
)


@click.group()
def log() -> None:
    """Look into the files of a log directory."""


@log.command()
@click.argument("path", metavar="FILE_OR_DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Also the records inside the batches.")
@click.option("--damage-only", is_flag=True, help="Print nothing but what is wrong.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each batch, entry or producer.")
@click.pass_context
def dump(ctx: click.Context, path: Path, with_records: bool, damage_only: bool, as_json: bool) -> None:
    """Print what is in segments (.log), indexes (.index, .timeindex, .txnindex) and producer snapshots (.snapshot).

    Checksums are verified and indexes held against their logs. Exit code 1 when anything is damaged.
    """
    from tidelog.cli.segment_files import SUFFIXES, find_files  # noqa: PLC0415 - --help must not pay for it

    files = find_files(path) if path.is_dir() else [path]
    if not path.is_dir() and path.suffix not in SUFFIXES:
        raise click.UsageError(f"{path} is none of {', '.join(SUFFIXES)}", ctx)
    if not files:
        raise click.ClickException(f"{path} holds no log files")
    damaged = sum(_dump_file(file, with_records, damage_only, as_json) for file in files)
    if damaged:
        places = "place" if damaged == 1 else "places"
        click.echo(f"tidelog: damage in {damaged} {places}", err=True)
        ctx.exit(1)


def _dump_file(path: Path, with_records: bool, damage_only: bool, as_json: bool) -> int:
    """Prints one file; gives the number of damaged places."""
    from tidelog.cli.segment_files import dump as read  # noqa: PLC0415

    damaged = 0
    if not as_json and not damage_only:
        click.echo(f"{path} ({human_bytes(path.stat().st_size)})")
    for finding in read(path, with_records=with_records):
        damaged += finding.damage is not None
        if damage_only and finding.damage is None:
            continue
        if as_json:
            sys.stdout.write(json.dumps(_document(path, finding), ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(f"{path}: " if damage_only else "  ")
            sys.stdout.write(_line(finding) + "\n")
            for record in finding.records:
                sys.stdout.write(f"    {_record_line(record)}\n")
    return damaged


def _line(finding: Finding) -> str:
    parts = [f"@{finding.position}"] if finding.kind != "producer" else []
    parts += [f"{name}={_shown(value)}" for name, value in finding.fields.items() if _telling(name, value)]
    if finding.damage is not None:
        parts.append(f"DAMAGED: {finding.damage}")
    return "  ".join(parts)


def _telling(name: str, value: Any) -> bool:
    """Whether a field says something: false flags and absent producers do not."""
    if value is False or name == "crc":
        return False
    return not (value == -1 and name in _ABSENT_IF_MINUS_ONE)


def _shown(value: Any) -> str:
    return "yes" if value is True else str(value)


def _record_line(record: Record) -> str:
    parts = [f"offset={record.offset}", f"timestamp={record.timestamp}"]
    parts.append(f"key={_bytes_shown(record.key)}")
    parts.append(f"value={_bytes_shown(record.value)}")
    parts += [f"{_bytes_shown(header_name(name))}: {_bytes_shown(value)}" for name, value in record.headers]
    return "  ".join(parts)


def _bytes_shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:_VALUE_SHOWN_MAX])[1:]
    return text if len(data) <= _VALUE_SHOWN_MAX else f"{text}... ({len(data)} bytes)"


def _document(path: Path, finding: Finding) -> dict[str, Any]:
    document: dict[str, Any] = {"file": str(path), "kind": finding.kind, "at": finding.position, **finding.fields}
    document["damage"] = finding.damage
    if finding.records:
        document["content"] = [record_fields(record) for record in finding.records]
    return document
