"""What keeps a store from opening. Its message is for the person who starts the broker."""

from __future__ import annotations


class StoreError(Exception):
    """The data directories cannot be used as they are. The message says what to do."""
