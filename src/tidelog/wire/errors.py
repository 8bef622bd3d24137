"""What can go wrong between bytes and messages.

WireError
├── DecodeError    the peer's fault: bytes that are not the message they claim to be
└── EncodeError    ours: a value that this version of the message cannot carry
"""

from __future__ import annotations


class WireError(ValueError):
    pass


class DecodeError(WireError):
    pass


class EncodeError(WireError):
    pass
