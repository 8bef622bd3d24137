from __future__ import annotations

import pytest

from tidelog.client.errors import NotSupported
from tidelog.client.versions import choose_version
from tidelog.wire.messages.produce import ProduceRequest

OURS = ProduceRequest.VERSIONS


@pytest.mark.parametrize(
    ("offered", "limit", "expected"),
    [
        ((0, 99), None, OURS.last),
        ((0, 9), None, 9),
        ((OURS.last, 99), None, OURS.last),
        ((0, OURS.first), None, OURS.first),
        ((0, 99), 12, 12),
        ((0, 8), 12, 8),
    ],
)
def test_the_newest_common_version_is_chosen(offered: tuple[int, int], limit: int | None, expected: int) -> None:
    assert choose_version({0: offered}, ProduceRequest, limit) == expected


@pytest.mark.parametrize(
    ("offered", "limit"), [((OURS.last + 1, 99), None), ((0, OURS.first - 1), None), ((13, 13), 12)]
)
def test_nothing_in_common_is_an_error(offered: tuple[int, int], limit: int | None) -> None:
    with pytest.raises(NotSupported, match="PRODUCE: the broker speaks versions"):
        choose_version({0: offered}, ProduceRequest, limit)


def test_an_api_that_is_not_offered_is_an_error() -> None:
    with pytest.raises(NotSupported, match="does not offer PRODUCE"):
        choose_version({1: (0, 5)}, ProduceRequest)
