package tidelog.peers;

import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends the records of standard input and prints one delivery report for each, in the order they came. */
final class Produce {
    private static final int REQUEST_OVERHEAD_BYTES = 64 * 1024;

    private Produce() {}

    static void run(Options options) throws Exception {
        String topic = options.get("topic");
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            records.add(JsonLines.toRecord(topic, line));
        }
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configure(options), new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            producer.flush();
            report(records, sent);
        }
    }

    private static Properties configure(Options options) {
        int batchBytes = options.integer("batch-bytes", 1_000_000);
        Properties config = new Properties();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ProducerConfig.CLIENT_ID_CONFIG, "tidelog-peer-java");
        config.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, options.get("codec", "none"));
        config.put(ProducerConfig.ACKS_CONFIG, options.get("acks", "all"));
        config.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, options.get("idempotent", "false"));
        config.put(ProducerConfig.BATCH_SIZE_CONFIG, batchBytes);
        config.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, batchBytes + REQUEST_OVERHEAD_BYTES);
        config.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        config.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 40_000);
        config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 30_000);
        return config;
    }

    private static void report(List<ProducerRecord<byte[], byte[]>> records, List<Future<RecordMetadata>> sent)
            throws Exception {
        PrintStream output = JsonLines.output();
        for (int i = 0; i < sent.size(); i++) {
            JsonObject report = new JsonObject();
            report.addProperty("partition", records.get(i).partition());
            try {
                RecordMetadata stored = sent.get(i).get();
                report.addProperty("partition", stored.partition());
                report.addProperty("offset", stored.offset());
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof ApiException)) {
                    throw failure;
                }
                report.addProperty("offset", -1);
                report.addProperty("error", Errors.forException(failure.getCause()).name());
            }
            output.println(JsonLines.line(report));
        }
        output.flush();
    }
}
