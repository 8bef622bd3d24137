"""Brokers prove to each other that they belong to one cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.security.broker_proof import NONCE_BYTES, Claimant, ProofRefused, Verifier

SECRET, OTHER = b"s" * 32, b"o" * 32
MINE, YOURS = b"m" * NONCE_BYTES, b"y" * NONCE_BYTES


def test_two_brokers_of_one_cluster_believe_each_other() -> None:
    claimant, verifier = Claimant(SECRET, 7, MINE), Verifier(SECRET, YOURS)
    proof = claimant.prove(verifier.answer(claimant.claim()))
    assert verifier.broker_id is None, "a claim alone proves nothing"
    assert verifier.answer(proof) == b""
    assert verifier.broker_id == 7


def test_a_stranger_is_refused_by_the_verifier() -> None:
    verifier = Verifier(SECRET, YOURS)
    verifier.answer(Claimant(OTHER, 7, MINE).claim())
    with pytest.raises(ProofRefused):
        verifier.answer(b"x" * 32)
    assert verifier.broker_id is None


def test_a_broker_of_another_cluster_is_refused_by_the_claimant() -> None:
    claimant = Claimant(SECRET, 7, MINE)
    with pytest.raises(ProofRefused, match="another cluster"):
        claimant.prove(Verifier(OTHER, YOURS).answer(claimant.claim()))


def test_a_recorded_proof_is_worth_nothing_for_another_challenge() -> None:
    claimant, verifier = Claimant(SECRET, 7, MINE), Verifier(SECRET, YOURS)
    recorded = claimant.prove(verifier.answer(claimant.claim()))
    later = Verifier(SECRET, b"z" * NONCE_BYTES)
    later.answer(claimant.claim())
    with pytest.raises(ProofRefused):
        later.answer(recorded)


def test_a_verifiers_own_proof_cannot_be_reflected() -> None:
    verifier = Verifier(SECRET, YOURS)
    challenge = verifier.answer(Claimant(SECRET, 7, MINE).claim())
    with pytest.raises(ProofRefused):
        verifier.answer(challenge[NONCE_BYTES:])


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_garbage_proves_nothing(first: bytes, second: bytes) -> None:
    verifier = Verifier(SECRET, YOURS)
    for token in (first, second):
        try:
            verifier.answer(token)
        except ProofRefused:
            break
    assert verifier.broker_id is None
