package tidelog.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/** Admin calls on topics and their partitions. */
final class TopicActions {
    private TopicActions() {}

    static Object create(Admin admin, Options options) throws Exception {
        String name = options.get("topic");
        NewTopic topic = new NewTopic(name, given(options, "partitions"), given(options, "replicas").map(Integer::shortValue));
        topic.configs(options.pairs("set"));
        CreateTopicsResult created = admin.createTopics(
                List.of(topic), new CreateTopicsOptions().validateOnly(options.flag("validate-only")));
        created.all().get();
        return Map.of(
                "partitions", created.numPartitions(name).get(),
                "replicas", created.replicationFactor(name).get());
    }

    private static Optional<Integer> given(Options options, String name) {
        int value = options.integer(name, -1);
        return value == -1 ? Optional.empty() : Optional.of(value);
    }

    static Object list(Admin admin, Options options) throws Exception {
        return Map.of("topics", new TreeSet<>(admin.listTopics().names().get()));
    }

    static Object describe(Admin admin, Options options) throws Exception {
        TopicDescription topic =
                admin.describeTopics(List.of(options.get("topic"))).allTopicNames().get().get(options.get("topic"));
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo partition : topic.partitions()) {
            partitions.add(Map.of(
                    "partition", partition.partition(),
                    "leader", partition.leader() == null ? -1 : partition.leader().id(),
                    "replicas", ids(partition.replicas()),
                    "isr", ids(partition.isr())));
        }
        return Map.of(
                "topic_id", topic.topicId().toString(), "internal", topic.isInternal(), "partitions", partitions);
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    static Object delete(Admin admin, Options options) throws Exception {
        admin.deleteTopics(List.of(options.get("topic"))).all().get();
        return Map.of();
    }

    static Object createPartitions(Admin admin, Options options) throws Exception {
        NewPartitions wanted = NewPartitions.increaseTo(Integer.parseInt(options.get("partitions")));
        admin.createPartitions(
                        Map.of(options.get("topic"), wanted),
                        new CreatePartitionsOptions().validateOnly(options.flag("validate-only")))
                .all()
                .get();
        return Map.of();
    }

    static Object listOffsets(Admin admin, Options options) throws Exception {
        TopicPartition partition = partition(options);
        ListOffsetsResultInfo found = admin.listOffsets(Map.of(partition, spec(options.get("at", "latest"))))
                .partitionResult(partition)
                .get();
        return Map.of("offset", found.offset(), "timestamp", found.timestamp());
    }

    private static OffsetSpec spec(String at) {
        switch (at) {
            case "earliest":
                return OffsetSpec.earliest();
            case "latest":
                return OffsetSpec.latest();
            case "max-timestamp":
                return OffsetSpec.maxTimestamp();
            default:
                return OffsetSpec.forTimestamp(Long.parseLong(at));
        }
    }

    static Object deleteRecords(Admin admin, Options options) throws Exception {
        TopicPartition partition = partition(options);
        RecordsToDelete before = RecordsToDelete.beforeOffset(Long.parseLong(options.get("before", "-1")));
        return Map.of(
                "low_watermark",
                admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark());
    }

    private static TopicPartition partition(Options options) {
        return new TopicPartition(options.get("topic"), options.integer("partition", 0));
    }
}
