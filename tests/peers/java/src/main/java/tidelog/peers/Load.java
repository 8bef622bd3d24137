package tidelog.peers;

import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends numbered records to all partitions in turn until standard input ends, and prints what became of each. */
final class Load {
    private static final int UNDER_WAY_MAX = 500;
    private static final int FILLING_MAX = 300;
    private static final int BURST = 20;
    private static final int BURST_EVERY_MS = 20;

    private Load() {}

    static void run(Options options) throws Exception {
        String topic = options.get("topic");
        int partitions = options.integer("partitions", 1);
        String name = options.get("name");
        PrintStream output = JsonLines.output();
        Semaphore room = new Semaphore(UNDER_WAY_MAX);
        AtomicBoolean over = endOfInput();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configure(options), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long sent = 0; !over.get(); sent++) {
                int partition = (int) (sent % partitions);
                long sequence = sent / partitions;
                room.acquire();
                if (sent % BURST == 0) {
                    Thread.sleep(BURST_EVERY_MS);
                }
                producer.send(new ProducerRecord<>(topic, partition, null, value(name, sequence)), (placed, failure) -> {
                    JsonObject report = new JsonObject();
                    report.addProperty("partition", partition);
                    report.addProperty("sequence", sequence);
                    if (failure == null) {
                        report.addProperty("offset", placed.offset());
                    } else {
                        report.addProperty("error", failure.toString());
                    }
                    output.println(JsonLines.line(report));
                    output.flush();
                    room.release();
                });
            }
            producer.flush();
        }
    }

    private static byte[] value(String name, long sequence) {
        String filling = ".".repeat((int) (sequence % FILLING_MAX));
        return (name + ":" + sequence + ":" + filling).getBytes(StandardCharsets.UTF_8);
    }

    private static AtomicBoolean endOfInput() {
        AtomicBoolean over = new AtomicBoolean();
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException failure) {
                failure.printStackTrace();
            }
            over.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        return over;
    }

    private static Properties configure(Options options) {
        Properties config = new Properties();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ProducerConfig.CLIENT_ID_CONFIG, "tidelog-peer-java-" + options.get("name"));
        config.put(ProducerConfig.ACKS_CONFIG, "all");
        config.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true");
        config.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        config.put(ProducerConfig.BATCH_SIZE_CONFIG, 8192);
        config.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 50);
        config.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 500);
        // A broker that is paused answers nothing, and nobody closes its connections.
        config.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 5_000);
        config.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 600_000);
        config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 120_000);
        return config;
    }
}
