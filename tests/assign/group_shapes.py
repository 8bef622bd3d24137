"""Groups for Hypothesis: members with subscriptions, topics with partitions, and what holds for every assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tidelog.assign.subscriber import Assignment, Subscriber

Members = dict[str, Subscriber[str]]
Partitions = dict[str, int]
ClassicAssignor = Callable[[Mapping[str, Subscriber[str]], Mapping[str, int]], Assignment[str]]

TOPICS = ["apples", "beans", "cherries", "dates", "eggs"]

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), max_size=5)
member_ids = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@st.composite
def even_groups(draw: st.DrawFn) -> tuple[Members, Partitions]:
    """All members subscribe to the same topics, some of which do not exist."""
    topics = frozenset(draw(st.sets(st.sampled_from(TOPICS), min_size=1)))
    ids = draw(member_ids)
    statics = draw(st.sets(st.sampled_from(ids)))
    members = {
        member_id: Subscriber(topics, instance_id=f"i-{member_id}" if member_id in statics else None)
        for member_id in ids
    }
    return members, draw(partition_counts)


@st.composite
def uneven_groups(draw: st.DrawFn) -> tuple[Members, Partitions]:
    members = {
        member_id: Subscriber(frozenset(draw(st.sets(st.sampled_from(TOPICS))))) for member_id in draw(member_ids)
    }
    return members, draw(partition_counts)


any_groups = even_groups() | uneven_groups()


@st.composite
def groups_with_claims(draw: st.DrawFn) -> tuple[Members, Partitions]:
    """Members say they own anything: what others own too, what does not exist, what they do not subscribe to."""
    members, partitions = draw(any_groups)
    claims = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(-1, 13), max_size=12), max_size=3)
    claimed = {
        member_id: Subscriber(member.topics, draw(claims), draw(st.integers(-1, 3)), member.instance_id)
        for member_id, member in members.items()
    }
    return claimed, partitions


def owning(members: Mapping[str, Subscriber[str]], assignment: Assignment[str], generation: int = 1) -> Members:
    """The members as they are after they were given an assignment."""
    return {
        member_id: Subscriber(member.topics, assignment.get(member_id, {}), generation, member.instance_id)
        for member_id, member in members.items()
    }


def owners(assignment: Assignment[str]) -> dict[tuple[str, int], str]:
    """The owner of each partition; fails if there are two."""
    found: dict[tuple[str, int], str] = {}
    for member_id, share in assignment.items():
        for topic, numbers in share.items():
            assert numbers, "a topic without partitions has no place in a share"
            assert numbers == sorted(numbers)
            for partition in numbers:
                assert (topic, partition) not in found, f"{topic}-{partition} is given to two members"
                found[topic, partition] = member_id
    return found


def assert_complete(
    members: Mapping[str, Subscriber[str]], partitions: Partitions, assignment: Assignment[str]
) -> None:
    """Every partition that somebody subscribes to has one owner, who subscribes to it; there is nothing else."""
    assert assignment.keys() == members.keys()
    found = owners(assignment)
    subscribed = {topic for member in members.values() for topic in member.topics}
    expected = {(topic, number) for topic in subscribed for number in range(partitions.get(topic, 0))}
    assert found.keys() == expected
    for (topic, _number), member_id in found.items():
        assert topic in members[member_id].topics


def loads(assignment: Assignment[str]) -> dict[str, int]:
    return {member_id: sum(map(len, share.values())) for member_id, share in assignment.items()}
