"""The names of a segment's files while it is being replaced. Kafka's suffixes, behind the ordinary name."""

from __future__ import annotations

from tidelog.storage import aborted_index, offset_index, time_index
from tidelog.storage.segment import LOG_SUFFIX

CLEANED = ".cleaned"
"""Being written, or written and not yet in use: worth nothing after a crash."""

SWAP = ".swap"
"""Complete, and to be put in place of the segments whose offsets it covers."""

SUFFIXES = (offset_index.SUFFIX, time_index.SUFFIX, aborted_index.SUFFIX, LOG_SUFFIX)
"""The log last: it is what makes the others count. All four are there, if only empty, while it is being replaced."""
