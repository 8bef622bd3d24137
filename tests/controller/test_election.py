"""Each rule of election as a table: replicas, who is in sync, who lives, and who then leads."""

from __future__ import annotations

import pytest

from tidelog.controller.election import Elected, elect, elect_preferred, elect_without, led, preferred
from tidelog.controller.image import NO_LEADER, PartitionImage


def a_partition(replicas: str, isr: str, observers: str = "", leader: int = 1, epoch: int = 5) -> PartitionImage:
    return PartitionImage(ids(replicas), ids(isr), leader, epoch, 9, observers=ids(observers))


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(digit) for digit in text)


@pytest.mark.parametrize(
    ("replicas", "isr", "observers", "live", "avoid", "unclean", "expected"),
    [
        ("123", "123", "", "23", "", False, Elected(2, (2, 3))),
        ("123", "13", "", "23", "", False, Elected(3, (3,))),
        ("321", "123", "", "123", "", False, Elected(3, (1, 2, 3))),
        ("123", "1", "", "23", "", False, None),
        ("123", "1", "", "23", "", True, Elected(2, (2,), unclean=True)),
        ("123", "12", "", "23", "", True, Elected(2, (2,))),
        ("123", "1", "", "", "", True, None),
        ("123", "1", "2", "23", "", True, Elected(3, (3,), unclean=True)),
        ("123", "1", "23", "23", "", True, None),
        ("123", "123", "", "23", "2", False, Elected(3, (2, 3))),
        ("123", "12", "", "23", "2", False, Elected(2, (2,))),
    ],
    ids=[
        "the first live in-sync replica",
        "only those in sync",
        "the order is the assignment's",
        "nobody in sync lives",
        "unclean where allowed",
        "clean goes before unclean",
        "nobody lives",
        "observers do not lead, not even uncleanly",
        "rather nobody than an observer",
        "those about to stop are avoided",
        "but taken when nobody else is there",
    ],
)
def test_elect(
    replicas: str, isr: str, observers: str, live: str, avoid: str, unclean: bool, expected: Elected | None
) -> None:
    partition = a_partition(replicas, isr, observers)
    assert elect(partition, set(ids(live)), avoid=set(ids(avoid)), unclean=unclean) == expected


@pytest.mark.parametrize(
    ("replicas", "isr", "observers", "live", "expected"),
    [
        ("213", "123", "", "123", Elected(2, (1, 2, 3))),
        ("213", "13", "", "123", None),
        ("213", "123", "", "13", None),
        ("213", "13", "2", "123", Elected(1, (1, 3))),
    ],
)
def test_the_preferred_replica_leads_only_if_it_is_in_sync(
    replicas: str, isr: str, observers: str, live: str, expected: Elected | None
) -> None:
    assert elect_preferred(a_partition(replicas, isr, observers), set(ids(live))) == expected


def test_a_partition_of_observers_alone_prefers_nobody() -> None:
    assert preferred(a_partition("12", "1", observers="12")) == NO_LEADER


@pytest.mark.parametrize(
    ("isr", "live", "avoid", "expected"),
    [
        ("123", "123", "1", Elected(2, (2, 3))),
        ("123", "123", "12", Elected(3, (2, 3))),
        ("1", "123", "1", None),
        ("12", "13", "1", None),
        ("12", "12", "12", None),
    ],
)
def test_a_broker_that_stops_hands_over_only_to_one_that_stays(
    isr: str, live: str, avoid: str, expected: Elected | None
) -> None:
    assert elect_without(a_partition("123", isr), 1, set(ids(live)), set(ids(avoid))) == expected


def test_every_election_raises_both_epochs() -> None:
    before = a_partition("123", "123")
    after = led(before, Elected(1, (1, 2, 3)))
    assert (after.leader_epoch, after.partition_epoch) == (6, 10)


def test_without_a_leader_the_in_sync_replicas_are_remembered() -> None:
    after = led(a_partition("123", "13"), None)
    assert (after.leader, after.isr) == (NO_LEADER, (1, 3))


def test_an_unclean_leader_is_marked_until_it_says_that_it_has_recovered() -> None:
    unclean = led(a_partition("123", "1"), Elected(2, (2,), unclean=True))
    assert unclean.recovering
    assert led(unclean, Elected(3, (3,))).recovering
