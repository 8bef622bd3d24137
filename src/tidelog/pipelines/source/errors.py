"""What the source raises. Spark shows the message as the last line of its own, so it says what to do."""

from __future__ import annotations


class SourceError(Exception):
    pass


class DataLost(SourceError):  # noqa: N818 - named for the fact it reports
    """Records that were to be read do not exist any more. Raised while failOnDataLoss is true."""


class ForeignCheckpoint(SourceError):  # noqa: N818 - same
    """The checkpoint was written by a query that reads something else."""
