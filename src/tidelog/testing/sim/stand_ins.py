"""What modules take from elsewhere, replaced while a world is open and put back afterwards."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random


class StandIns:
    def __init__(self) -> None:
        self._real: dict[tuple[Any, str], Any] = {}

    def replace(self, module: Any, name: str, stand_in: Any) -> None:
        self._real[module, name] = getattr(module, name)
        setattr(module, name, stand_in)

    def seed_secrets(self, chance: random.Random) -> None:
        """Has what programs take for true randomness come from `chance`."""
        self.replace(secrets, "token_bytes", lambda count=32: chance.randbytes(count))
        self.replace(secrets, "token_hex", lambda count=32: chance.randbytes(count).hex())
        self.replace(secrets, "token_urlsafe", lambda count=32: chance.randbytes(count).hex())
        self.replace(secrets, "randbelow", chance.randrange)
        self.replace(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))

    def remove(self) -> None:
        for (module, name), real in self._real.items():
            setattr(module, name, real)
        self._real.clear()
