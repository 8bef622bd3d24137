"""What can go wrong with a cluster on this machine."""

from __future__ import annotations


class LocalClusterError(Exception):
    """The message says what to do, or ends with what the process that failed has said."""
