"""What keeps a session from starting, told so that the user knows what to do."""

from __future__ import annotations


class SessionError(Exception):
    """One line for the user."""
