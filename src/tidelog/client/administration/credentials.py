"""Passwords of users, as SCRAM stores them. They never leave the client: brokers get what they need to check them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.administration.asking import Asking, outcome_of
from tidelog.client.outcomes import Outcomes
from tidelog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, salted_password
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_SALT_BYTES = 24


class ScramCredential(NamedTuple):
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class NewScramCredential:
    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = 8192

    def __post_init__(self) -> None:
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise ValueError(f"iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {self.iterations}")


class CredentialAdmin(Asking):
    async def describe_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Outcomes[str, tuple[ScramCredential, ...]]:
        """Which users have credentials, all of them or those named, by mechanism; never the secrets."""
        named = None if users is None else [UserName(name=user) for user in users]
        reply = await self._ask(
            None,
            "describing SCRAM credentials",
            DescribeUserScramCredentialsRequest(users=named),
            DescribeUserScramCredentialsResponse,
            lambda r: r.error_code,
        )
        found: Outcomes[str, tuple[ScramCredential, ...]] = Outcomes()
        for result in reply.results:
            known = [info for info in result.credential_infos if info.mechanism in set(ScramMechanism)]
            # Brokers tell them in any order.
            held = tuple(sorted(ScramCredential(ScramMechanism(info.mechanism), info.iterations) for info in known))
            found[result.user] = outcome_of(result.error_code, result.error_message, f"user {result.user}", held)
        return found

    async def alter_scram_credentials(
        self,
        *,
        set: Iterable[NewScramCredential] = (),  # noqa: A002 - the word for it
        delete: Iterable[tuple[str, ScramMechanism]] = (),
    ) -> Outcomes[str, None]:
        """By user, each of whom a call may name once. None: done."""
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in delete],
            upsertions=[_upsertion(credential) for credential in set],
        )
        reply = await self._ask_controller(
            "altering SCRAM credentials",
            request,
            AlterUserScramCredentialsResponse,
            lambda r: [result.error_code for result in r.results],
        )
        return Outcomes(
            (result.user, outcome_of(result.error_code, result.error_message, f"user {result.user}", None))
            for result in reply.results
        )


def _upsertion(credential: NewScramCredential) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=credential.user,
        mechanism=credential.mechanism,
        iterations=credential.iterations,
        salt=salt,
        salted_password=salted_password(credential.mechanism, credential.password, salt, credential.iterations),
    )
