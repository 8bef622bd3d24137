"""How much users and clients may use: quotas."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.outcomes import Outcomes
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Quota(Enum):
    DEFAULT = "default"
    """Whoever has no quota by name."""
    ANY = "any"
    """In questions: whoever has one, by name or by default."""


_EXACT, _DEFAULT, _ANY = 0, 1, 2
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}


class QuotaEntity(NamedTuple):
    """Whom a quota is for; several parts mean a user by way of a client, for example. None: not looked at."""

    user: str | Quota | None = None
    client_id: str | Quota | None = None
    ip: str | Quota | None = None

    def __str__(self) -> str:
        named = zip(_TYPES.values(), self, strict=True)
        return ", ".join(f"{kind} {part.value if isinstance(part, Quota) else part}" for kind, part in named if part)

    def parts(self) -> list[tuple[str, str | Quota]]:
        named = zip(_TYPES.values(), self, strict=True)
        return [(kind, part) for kind, part in named if part is not None]


class QuotaAdmin(Asking):
    async def describe_client_quotas(
        self, matching: QuotaEntity | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of those who match, such as consumer_byte_rate; of everybody unless said otherwise.

        With `strict`, only of those who have no parts but the ones named.
        """
        components = []
        for kind, part in (matching or QuotaEntity()).parts():
            if isinstance(part, Quota):
                match = _DEFAULT if part is Quota.DEFAULT else _ANY
                components.append(ComponentData(entity_type=kind, match_type=match, match=None))
            else:
                components.append(ComponentData(entity_type=kind, match_type=_EXACT, match=part))
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        reply = await self._ask(
            None, "describing quotas", request, DescribeClientQuotasResponse, lambda r: r.error_code
        )
        return {
            _entity((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in reply.entries or ()
        }

    async def alter_client_quotas(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> Outcomes[QuotaEntity, None]:
        """Sets quotas by their keys, such as producer_byte_rate; the value None removes one."""
        request = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=_named(entity),
                    ops=[
                        OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                        for key, value in values.items()
                    ],
                )
                for entity, values in quotas.items()
            ],
            validate_only=validate_only,
        )
        reply = await self._ask_controller(
            "altering quotas", request, AlterClientQuotasResponse, lambda r: [each.error_code for each in r.entries]
        )
        altered: Outcomes[QuotaEntity, None] = Outcomes()
        for entry in reply.entries:
            entity = _entity((part.entity_type, part.entity_name) for part in entry.entity)
            altered[entity] = outcome_of(entry.error_code, entry.error_message, str(entity), None)
        return altered


def _named(entity: QuotaEntity) -> list[EntityData]:
    if Quota.ANY in entity:
        raise ValueError("Quota.ANY is for questions: name whom the quota is for, or use Quota.DEFAULT")
    return [
        EntityData(entity_type=kind, entity_name=None if isinstance(part, Quota) else part)
        for kind, part in entity.parts()
    ]


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Parts of kinds newer than this client are left out."""
    found = {kind: Quota.DEFAULT if name is None else name for kind, name in parts}
    return QuotaEntity(**{field: found[kind] for field, kind in _TYPES.items() if kind in found})
