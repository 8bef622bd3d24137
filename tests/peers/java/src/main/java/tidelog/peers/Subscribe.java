package tidelog.peers;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group until SIGTERM, with the options and the lines of tests/groups/member.py. */
final class Subscribe implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final PrintStream output = JsonLines.output();
    private final TreeSet<TopicPartition> owned = new TreeSet<>(
            Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final boolean commits;

    private Subscribe(Options options) {
        commits = options.get("commit", "sync").equals("sync");
        consumer = new KafkaConsumer<>(configure(options), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        String pattern = options.get("pattern", null);
        if (pattern == null) {
            consumer.subscribe(options.all("topic"), this);
        } else if (options.get("protocol", "classic").equals("consumer")) {
            consumer.subscribe(new SubscriptionPattern(pattern), this);
        } else {
            consumer.subscribe(Pattern.compile(pattern), this);
        }
    }

    static void run(Options options) throws InterruptedException {
        Subscribe member = new Subscribe(options);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException gone) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            member.readUntilWoken();
        } finally {
            closed.countDown();
        }
    }

    private void readUntilWoken() {
        try {
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    take(record);
                }
                commit();
            }
        } catch (WakeupException asked) {
            consumer.close();
            say(line("closed"));
        } catch (KafkaException failure) {
            JsonObject line = line("failed");
            line.addProperty("error", failure.toString());
            say(line);
            throw failure;
        }
    }

    private void take(ConsumerRecord<byte[], byte[]> record) {
        JsonObject line = line("record");
        line.add("at", place(record.topic(), record.partition(), record.offset()));
        line.addProperty("value", record.value() == null ? null : new String(record.value(), StandardCharsets.UTF_8));
        say(line);
        uncommitted.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
    }

    /** What is refused while partitions move is tried again, until they are taken away. */
    private void commit() {
        if (!commits || uncommitted.isEmpty()) {
            return;
        }
        JsonArray upto = new JsonArray();
        uncommitted.forEach((at, position) -> upto.add(place(at.topic(), at.partition(), position.offset())));
        JsonObject line;
        try {
            consumer.commitSync(uncommitted);
            uncommitted.clear();
            line = line("committed");
        } catch (WakeupException asked) {
            throw asked;
        } catch (KafkaException refusal) {
            line = line("refused");
            line.addProperty("error", refusal.toString());
        }
        line.add("upto", upto);
        say(line);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned.addAll(partitions);
        sayOwned("assigned");
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        giveUp(partitions, "revoked");
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        giveUp(partitions, "lost");
    }

    private void giveUp(Collection<TopicPartition> partitions, String why) {
        partitions.forEach(uncommitted::remove);
        owned.removeAll(partitions);
        sayOwned(why);
    }

    private void sayOwned(String why) {
        JsonArray partitions = new JsonArray();
        for (TopicPartition partition : owned) {
            JsonArray pair = new JsonArray();
            pair.add(partition.topic());
            pair.add(partition.partition());
            partitions.add(pair);
        }
        JsonObject line = line("owns");
        line.addProperty("why", why);
        line.add("partitions", partitions);
        say(line);
    }

    private void say(JsonObject line) {
        output.println(JsonLines.line(line));
        output.flush();
    }

    private static JsonObject line(String event) {
        JsonObject line = new JsonObject();
        line.addProperty("event", event);
        return line;
    }

    private static JsonArray place(String topic, int partition, long offset) {
        JsonArray place = new JsonArray();
        place.add(topic);
        place.add(partition);
        place.add(offset);
        return place;
    }

    private static Properties configure(Options options) {
        boolean classic = options.get("protocol", "classic").equals("classic");
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ConsumerConfig.CLIENT_ID_CONFIG, "tidelog-peer-java");
        config.put(ConsumerConfig.GROUP_ID_CONFIG, options.get("group"));
        config.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, classic ? "classic" : "consumer");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, options.get("commit", "sync").equals("auto"));
        config.put(ConsumerConfig.AUTO_COMMIT_INTERVAL_MS_CONFIG, 200);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, options.get("reset", "earliest"));
        config.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, options.integer("metadata-ms", 300_000));
        config.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 100);
        config.put(ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 200);
        config.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        if (options.get("instance", null) != null) {
            config.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, options.get("instance"));
        }
        String assignor = options.get("assignor", null);
        if (classic) {
            config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, options.integer("session-ms", 6000));
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, options.integer("heartbeat-ms", 300));
            if (assignor != null) {
                config.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, ASSIGNORS.get(assignor));
            }
        } else if (assignor != null) {
            config.put(ConsumerConfig.GROUP_REMOTE_ASSIGNOR_CONFIG, assignor);
        }
        return config;
    }
}
