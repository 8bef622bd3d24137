from __future__ import annotations

import pytest

from tidelog.net.admission import Admission, AdmissionLimits


def test_the_total_is_bounded() -> None:
    admission = Admission(AdmissionLimits(connections_max=2))
    assert admission.enter("192.0.2.1") is None
    assert admission.enter("192.0.2.2") is None
    refusal = admission.enter("192.0.2.3")
    assert refusal is not None
    assert "max.connections = 2" in refusal
    admission.leave("192.0.2.1")
    assert admission.enter("192.0.2.3") is None


def test_each_address_is_bounded() -> None:
    admission = Admission(AdmissionLimits(connections_max_per_ip=1))
    assert admission.enter("192.0.2.1") is None
    assert admission.enter("192.0.2.2") is None
    refusal = admission.enter("192.0.2.1")
    assert refusal is not None
    assert "192.0.2.1 has 1 connections" in refusal
    admission.leave("192.0.2.1")
    assert admission.enter("192.0.2.1") is None


def test_overrides_go_both_ways() -> None:
    limits = AdmissionLimits(connections_max_per_ip=1, per_ip_overrides={"192.0.2.1": 2, "192.0.2.9": 0})
    admission = Admission(limits)
    assert [admission.enter("192.0.2.1") is None for _ in range(3)] == [True, True, False]
    assert admission.enter("192.0.2.9") is not None


def test_a_refused_connection_is_not_counted() -> None:
    admission = Admission(AdmissionLimits(connections_max=1))
    admission.enter("192.0.2.1")
    admission.enter("192.0.2.2")
    assert admission.count == 1
    with pytest.raises(KeyError):
        admission.leave("192.0.2.2")
