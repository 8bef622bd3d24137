"""What groups of the newer protocol cost, counted in lines run: a heartbeat, and many members that join at once."""

from __future__ import annotations

from consumer_readers import GROUP, ConsumerDriver, Reader, settle
from line_count import lines_run

from tidelog.coordinators.groups.topics import Caller
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def test_a_plain_heartbeat_is_a_handful_of_steps_whatever_the_group_is_like() -> None:
    driver = ConsumerDriver(t=1000)
    settle([Reader(driver, f"m{number}") for number in range(20)], rounds=6)
    assert driver.consumer_describe().group_state == "Stable"
    epoch = driver.group().epoch
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m7", member_epoch=epoch)
    caller = Caller(1, "client", "/1.2.3.4", driver.topics)
    assert lines_run(lambda: driver.shard.handle(1, request, caller, driver.now_ms)) < 60


def storm(members: int) -> tuple[int, int]:
    """Lines run, and records written, until so many members that join at once have all they are to have."""
    driver = ConsumerDriver(t=400)
    readers = [Reader(driver, f"m{number:03}") for number in range(members)]

    def join_and_settle() -> None:
        for reader in readers:
            driver.now_ms += 1
            reader.beat()
            reader.obey()
        settle(readers, rounds=4)

    lines = lines_run(join_and_settle)
    assert driver.consumer_describe().group_state == "Stable"
    assert {len(reader.reading) for reader in readers} == {400 // members}
    return lines, len(driver.log)


def test_many_members_that_join_at_once_cost_in_proportion() -> None:
    few_lines, few_records = storm(20)
    many_lines, many_records = storm(80)
    assert many_lines < 6 * few_lines
    assert many_records < 6 * few_records


def test_a_topic_that_concerns_nobody_costs_little_in_every_group() -> None:
    driver = ConsumerDriver(t=4)
    for number in range(50):
        driver.enter_new("m1", group_id=f"g{number}")
    driver.topics.counts["other"] = 5
    assert lines_run(lambda: driver.shard.on_topics_changed(driver.topics, driver.now_ms)) < 50 * 60
