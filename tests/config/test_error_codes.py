"""The error-code table is whole: every code explains itself."""

from __future__ import annotations

import pytest

from tidelog.errors import _DESCRIPTIONS, BrokerError, ErrorCode


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_one_line_description(code: ErrorCode) -> None:
    assert code.description
    assert "\n" not in code.description
    assert code.description.endswith(".")


def test_descriptions_are_each_their_own() -> None:
    assert len(set(_DESCRIPTIONS.values())) == len(ErrorCode)


def test_a_broker_error_carries_its_code_and_message() -> None:
    error = BrokerError(ErrorCode.INVALID_CONFIG, "say this")
    assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, "say this")
    assert BrokerError(ErrorCode.INVALID_CONFIG).message == "INVALID_CONFIG"
