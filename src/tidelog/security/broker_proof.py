"""How brokers of one cluster prove to each other that they are: by knowing the cluster's secret, without telling it.

Three tokens, carried by SaslAuthenticate under a mechanism of our own. Both sides choose a nonce and both prove
themselves, so that neither a recorded exchange nor a stranger at a broker's address is believed:

    claimant -> broker id, claimant's nonce
    verifier -> verifier's nonce, HMAC over ("verifier", id, both nonces)
    claimant -> HMAC over ("claimant", id, both nonces)

It proves who opened the connection. What is sent over it afterwards is only as safe as the network: use TLS where that
is not trusted.
"""

from __future__ import annotations

import hmac
from struct import Struct

MECHANISM = "TIDELOG-BROKER"
NONCE_BYTES = 32
SECRET_BYTES = 32

_BROKER_ID = Struct(">i")
_PROOF_BYTES = 32


class ProofRefused(Exception):  # noqa: N818 - named for what happened
    """The other side does not know the cluster's secret, or does not speak this exchange."""


class Claimant:
    """The broker that opened the connection."""

    def __init__(self, secret: bytes, broker_id: int, nonce: bytes) -> None:
        self._secret = secret
        self._claim = _BROKER_ID.pack(broker_id) + nonce

    def claim(self) -> bytes:
        return self._claim

    def prove(self, challenge: bytes) -> bytes:
        """Our proof, after the other side's was found good."""
        nonce, proof = challenge[:NONCE_BYTES], challenge[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._secret, b"verifier", self._claim, nonce)):
            raise ProofRefused(
                "the other broker does not know this cluster's secret: does it belong to another cluster?"
            )
        return _proof(self._secret, b"claimant", self._claim, nonce)


class Verifier:
    """The broker that accepted the connection."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._claim: bytes | None = None
        self.broker_id: int | None = None
        """Known once it is proved."""

    def answer(self, token: bytes) -> bytes:
        """What to send back for the claimant's next token."""
        if self._claim is None:
            if len(token) != _BROKER_ID.size + NONCE_BYTES:
                raise ProofRefused(f"a claim has {_BROKER_ID.size + NONCE_BYTES} bytes, not {len(token)}")
            self._claim = bytes(token)
            return self._nonce + _proof(self._secret, b"verifier", self._claim, self._nonce)
        expected = _proof(self._secret, b"claimant", self._claim, self._nonce)
        claim, self._claim = self._claim, None  # one attempt for each challenge
        if len(token) != _PROOF_BYTES or not hmac.compare_digest(token, expected):
            raise ProofRefused("the proof is wrong: this connection does not come from a broker of this cluster")
        (self.broker_id,) = _BROKER_ID.unpack_from(claim)
        return b""


def _proof(secret: bytes, side: bytes, claim: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, side + claim + nonce, "sha256")
