"""What outlives the broker's process: after a clean stop, after `kill -9`, and after damage to its files."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from asking import (
    EARLIEST,
    LATEST,
    batch_of,
    create_topic,
    delete_topic,
    describe,
    fetch_request,
    list_offset,
    produce,
    produce_request,
    try_fetch,
    values_in,
)

from tidelog.errors import ErrorCode
from tidelog.testing import BrokerProcess, BrokerProcessError, RawClient, eventually
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidelog.testing import StartBroker


def stop(broker: BrokerProcess) -> None:
    assert broker.stop() == 0


ENDINGS = [pytest.param(stop, id="stop"), pytest.param(BrokerProcess.kill, id="kill")]


def active_segment(broker: BrokerProcess, partition: str = "t-0") -> Path:
    return max((broker.data_dir / partition).glob("*.log"))


@pytest.mark.parametrize("end", ENDINGS)
@pytest.mark.parametrize("acks", [1, -1])
def test_acknowledged_records_survive(
    fresh_broker: StartBroker, end: Callable[[BrokerProcess], None], acks: int
) -> None:
    broker = fresh_broker()
    expected: list[bytes | None] = []
    with RawClient(broker.port) as client:
        create_topic(client, "t", partitions=2)
    for round_number in range(2):
        with RawClient(broker.port) as client:
            for number in range(20):
                value = b"%d-%d" % (round_number, number)
                produce(client, "t", batch_of([value]), 1, acks=acks)
                expected.append(value)
        end(broker)
        broker.start()
        with RawClient(broker.port) as client:
            assert values_in(client, "t", 1) == expected
            assert list_offset(client, "t", LATEST, 1).offset == len(expected)


@pytest.mark.parametrize("end", ENDINGS)
def test_topics_ids_and_the_cluster_s_identity_survive(
    fresh_broker: StartBroker, end: Callable[[BrokerProcess], None]
) -> None:
    broker = fresh_broker()
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=False)
    with RawClient(broker.port) as client:
        kept = create_topic(client, "kept", partitions=3)
        create_topic(client, "deleted")
        delete_topic(client, "deleted")
        cluster_id = client.call(cluster, 1, DescribeClusterResponse).cluster_id
    end(broker)
    broker.start()
    with RawClient(broker.port) as client:
        entry = describe(client, "kept")
        assert (entry.error_code, entry.topic_id, len(entry.partitions)) == (ErrorCode.NONE, kept, 3)
        assert all(partition.leader_id == 0 for partition in entry.partitions)
        assert describe(client, "deleted").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.call(cluster, 1, DescribeClusterResponse).cluster_id == cluster_id


@pytest.mark.parametrize("end", ENDINGS)
def test_deleted_records_stay_deleted(fresh_broker: StartBroker, end: Callable[[BrokerProcess], None]) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        produce(client, "t", batch_of([b"a", b"b", b"c"]))
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=10_000)
        client.call(request, 2, DeleteRecordsResponse)
    end(broker)
    broker.start()
    with RawClient(broker.port) as client:
        assert list_offset(client, "t", EARLIEST).offset == 2
        assert values_in(client, "t") == [b"c"]


def test_a_leader_epoch_of_the_past_is_fenced_when_the_broker_was_elected_anew(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        before = describe(client, "t").partitions[0].leader_epoch
    broker.restart()
    with RawClient(broker.port) as client:
        now = describe(client, "t").partitions[0].leader_epoch
        assert now >= before
        code = try_fetch(client, fetch_request("t", 0, leader_epoch=before)).error_code
        assert code == (ErrorCode.FENCED_LEADER_EPOCH if now > before else ErrorCode.NONE)


def test_a_torn_batch_at_the_end_of_the_log_is_cut_off(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        produce(client, "t", batch_of([b"whole"]))
    broker.kill()
    torn = batch_of([b"never finished" * 100])[:300]
    with active_segment(broker).open("ab") as file:
        file.write(torn)
    broker.start()
    with RawClient(broker.port) as client:
        assert values_in(client, "t") == [b"whole"]
        assert produce(client, "t", batch_of([b"next"])) == 1
        assert values_in(client, "t") == [b"whole", b"next"]


def test_a_batch_damaged_by_a_crash_is_cut_off(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        for value in (b"one", b"two", b"three"):
            produce(client, "t", batch_of([value]))
    broker.kill()
    segment = active_segment(broker)
    content = bytearray(segment.read_bytes())
    content[-2] ^= 0xFF
    segment.write_bytes(content)
    broker.start()
    with RawClient(broker.port) as client:
        assert values_in(client, "t") == [b"one", b"two"]


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_indexes_are_made_anew_when_they_are_lost(fresh_broker: StartBroker, damage: str) -> None:
    broker = fresh_broker()
    values: list[bytes | None] = [b"%05d" % number * 2000 for number in range(40)]
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        for value in values:
            produce(client, "t", batch_of([value]))
    broker.kill()
    for suffix in ("index", "timeindex"):
        for path in (broker.data_dir / "t-0").glob(f"*.{suffix}"):
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(b"" if damage == "empty" else b"\xa5" * 333)
    broker.start()
    with RawClient(broker.port) as client:
        assert values_in(client, "t") == values


def test_logs_of_many_segments_open_again(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t", configs={"segment.bytes": str(1 << 20)})
        for number in range(12):
            produce(client, "t", batch_of([b"%02d" % number * 200_000]))
    assert len(list((broker.data_dir / "t-0").glob("*.log"))) > 3
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert [value[:2] for value in values_in(client, "t") if value] == [b"%02d" % number for number in range(12)]
        assert produce(client, "t", batch_of([b"next"])) == 12


def test_two_brokers_do_not_share_a_directory(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    rival = BrokerProcess(broker.data_dir)
    with pytest.raises(BrokerProcessError, match=r"(?i)lock|another|in use"):
        rival.start()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        assert produce(client, "t", batch_of([b"unharmed"])) == 0


def test_a_stop_is_clean_with_clients_connected_and_waiting(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as idle, RawClient(broker.port) as waiting, RawClient(broker.port) as client:
        create_topic(client, "t")
        waiting.send(fetch_request("t", 0, max_wait_ms=600_000), 12)
        assert broker.stop() == 0
        assert idle.wait_until_closed() == 0
        waiting.wait_until_closed()


def test_an_interrupt_from_the_keyboard_is_a_clean_stop_too(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    process = broker._running_process()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_what_was_sent_before_the_stop_is_stored_if_it_was_acknowledged(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        sent = [client.send(produce_request("t", batch_of([b"%d" % number])), 9) for number in range(300)]
        client.receive(ProduceResponse, 9, sent[0])
        process = broker._running_process()
        process.send_signal(signal.SIGTERM)
        acknowledged = 1
        try:
            for correlation_id in sent[1:]:
                reply = client.receive(ProduceResponse, 9, correlation_id)
                if reply.responses[0].partition_responses[0].error_code != ErrorCode.NONE:
                    break
                acknowledged += 1
        except ConnectionError:
            pass  # the broker is gone; what it acknowledged until then counts
        assert process.wait(30) == 0
    broker.start()
    with RawClient(broker.port) as client:
        stored = values_in(client, "t")
        assert len(stored) >= acknowledged
        assert stored == [b"%d" % number for number in range(len(stored))]


def test_the_port_and_the_log_are_kept_over_restarts(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    port = broker.port
    broker.restart()
    assert broker.port == port
    ready = [line for line in broker.log_lines() if "ready: broker 0 listens on" in line]
    assert len(ready) == 2


def test_an_empty_broker_starts_over_and_over(fresh_broker: StartBroker) -> None:
    broker = fresh_broker()
    for _ in range(3):
        broker.kill()
        broker.start()
    with RawClient(broker.port) as client:
        create_topic(client, "t")
        eventually(lambda: describe(client, "t").error_code == ErrorCode.NONE, "the topic")


def test_an_unknown_setting_is_warned_about_and_a_wrong_value_stops_the_start(
    fresh_broker: StartBroker, tmp_path: Path
) -> None:
    broker = fresh_broker({"no.such.setting": "1"})
    assert "no.such.setting" in broker.log_tail(1000)
    with pytest.raises(BrokerProcessError, match=r"num\.partitions"):
        BrokerProcess(tmp_path / "wrong", {"num.partitions": "many"}).start()
