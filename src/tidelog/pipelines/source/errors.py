"""What the source raises. Spark shows the message as the last line of its own, so it says what to do."""

from __future__ import annotations


class SourceError(Exception):
    pass


class TopicMissing(SourceError):  # noqa: N818 - named for the fact it reports
    """A topic or partition that was named does not exist, or not yet."""


class Unreadable(SourceError):  # noqa: N818 - same
    """What the broker has is damaged, or written in a way that is not known here: it stays like that."""


class DataLost(SourceError):  # noqa: N818 - same
    """Records that were to be read do not exist any more. Raised while failOnDataLoss is true."""


class ForeignCheckpoint(SourceError):  # noqa: N818 - same
    """The checkpoint was written by a query that reads something else."""
