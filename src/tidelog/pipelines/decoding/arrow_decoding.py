"""Decodes whole Arrow batches in Python workers. A value that cannot be read becomes a null and the reason why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.serializers.registry import RegistryError
from tidelog.pipelines.decoding.readers import reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa  # type: ignore[import-untyped]

    from tidelog.pipelines.definition.formats import Format


_NOT_FOUND: Final = 404


@dataclass(frozen=True)
class ArrowDecoding:
    """Adds two columns to each batch: what `column` decodes to, and the error."""

    format: Format
    column: str
    decoded: str
    error: str
    arrow_type: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        read = reader_of(self.format)
        for batch in batches:
            values, errors = decoded(batch.column(self.column).to_pylist(), read)
            try:
                array = pa.array(values, type=self.arrow_type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                array = self._one_by_one(values, errors)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, array, pa.array(errors, type=pa.string())],
                names=[*batch.schema.names, self.decoded, self.error],
            )

    def _one_by_one(self, values: list[Any], errors: list[str | None]) -> Any:
        """Some value is none that its type has, such as a time in the year 20000: finds out which."""
        import pyarrow as pa  # noqa: PLC0415

        for at, value in enumerate(values):
            try:
                pa.array([value], type=self.arrow_type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                values[at], errors[at] = None, f"it does not fit the schema: {error}"
        return pa.array(values, type=self.arrow_type)


def decoded(
    data: list[bytes | None], read: Callable[[bytes], dict[str, Any]]
) -> tuple[list[dict[str, Any] | None], list[str | None]]:
    values: list[dict[str, Any] | None] = []
    errors: list[str | None] = []
    for each in data:
        value, error = None, None
        if each is not None:
            try:
                value = read(each)
            except RegistryError as failure:
                # Only a schema that does not exist is the record's fault: without the registry, nothing can be judged.
                if failure.status != _NOT_FOUND:
                    raise
                error = str(failure)
            except Exception as failure:  # noqa: BLE001 - decoders raise whatever they like over bytes from outside
                error = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        values.append(value)
        errors.append(error)
    return values, errors
