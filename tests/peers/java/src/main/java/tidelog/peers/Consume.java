package tidelog.peers;

import java.io.PrintStream;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads one assigned partition from an offset, without a group. */
final class Consume {
    private Consume() {}

    /** Whether as many records as wanted came in time. */
    static boolean run(Options options) {
        TopicPartition partition = new TopicPartition(options.get("topic"), options.integer("partition", 0));
        int wanted = Integer.parseInt(options.get("count"));
        int timeoutMs = options.integer("timeout-ms", 30_000);
        int seen = 0;
        PrintStream output = JsonLines.output();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configure(options), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, Long.parseLong(options.get("from", "0")));
            long deadline = System.nanoTime() + timeoutMs * 1_000_000L;
            while (seen < wanted && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (seen < wanted) {
                        output.println(JsonLines.line(JsonLines.fromRecord(record)));
                        seen++;
                    }
                }
            }
        } finally {
            output.flush();
        }
        if (seen < wanted) {
            System.err.println("got " + seen + " of " + wanted + " records within " + timeoutMs + " ms");
        }
        return seen == wanted;
    }

    private static Properties configure(Options options) {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ConsumerConfig.CLIENT_ID_CONFIG, "tidelog-peer-java");
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, options.get("isolation", "read_uncommitted"));
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false);
        return config;
    }
}
