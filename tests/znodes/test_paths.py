"""Kafka's tree, and the rules that its paths obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.znodes import paths
from tidelog.znodes.errors import BadArguments
from tidelog.znodes.path_rules import check_path, child_of, name_of, parent_of


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.broker(3), "/brokers/ids/3"),
        (paths.topic("t"), "/brokers/topics/t"),
        (paths.partitions("t"), "/brokers/topics/t/partitions"),
        (paths.partition("t", 4), "/brokers/topics/t/partitions/4"),
        (paths.partition_state("t", 4), "/brokers/topics/t/partitions/4/state"),
        (paths.delete_topic("t"), "/admin/delete_topics/t"),
        (paths.topic_config("t"), "/config/topics/t"),
        (paths.broker_config(3), "/config/brokers/3"),
        (paths.broker_config(None), "/config/brokers/<default>"),
        (paths.group_members("g"), "/consumers/g/ids"),
        (paths.group_member("g", "c-1"), "/consumers/g/ids/c-1"),
        (paths.partition_owner("g", "t", 0), "/consumers/g/owners/t/0"),
        (paths.group_offset("g", "t", 0), "/consumers/g/offsets/t/0"),
        (paths.group_owners("g"), "/consumers/g/owners"),
        (paths.group_offsets("g"), "/consumers/g/offsets"),
        (paths.group("a/b"), "/consumers/a%2Fb"),
        (paths.group(".."), "/consumers/%2E%2E"),
    ],
)
def test_places(path: str, expected: str) -> None:
    assert path == expected


def test_the_tree_that_brokers_make_sure_of_is_legal() -> None:
    for path in paths.PERSISTENT:
        check_path(path)


@given(st.text(min_size=1, max_size=100), st.text(min_size=1, max_size=50))
def test_any_group_and_member_name_stays_in_its_place(group_id: str, member_id: str) -> None:
    try:
        path = paths.group_member(group_id, member_id)
    except UnicodeEncodeError:  # a lone surrogate cannot come from the wire
        return
    if len(path) <= 1024:
        check_path(path)
    assert path.count("/") == 4
    assert parent_of(parent_of(path)) == paths.group(group_id)
    assert paths.group_named(paths.group(group_id).rpartition("/")[2]) == group_id


@pytest.mark.parametrize("name", ["a b", "%zz", "%2f", "%FF"])
def test_a_name_that_no_group_has_is_known(name: str) -> None:
    assert paths.group_named(name) is None


@given(st.lists(st.text("abc.é", min_size=1, max_size=5).filter(lambda name: name.strip(".")), min_size=1, max_size=4))
def test_paths_split_and_join(names: list[str]) -> None:
    path = "/" + "/".join(names)
    check_path(path)
    assert name_of(path) == names[-1]
    assert child_of(parent_of(path), names[-1]) == path


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\nb", "/\x7f", "/\ud800", "/\uf000"])
def test_illegal_paths(path: str) -> None:
    with pytest.raises(BadArguments, match="path"):
        check_path(path)


def test_a_sequential_path_may_end_in_a_slash() -> None:
    check_path("/a/", sequential=True)
    check_path("/", sequential=True)
    with pytest.raises(BadArguments):
        check_path("//", sequential=True)


def test_the_longest_topic_fits() -> None:
    check_path(paths.partition_state("t" * 249, 2**31 - 1))
