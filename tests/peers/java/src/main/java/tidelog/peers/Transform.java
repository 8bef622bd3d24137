package tidelog.peers;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consumes, transforms and produces in transactions, with the options and the lines of
 * tests/transactions/transformer.py. With {@code --halt-chance} it ends at any step as if its machine had.
 */
final class Transform {
    private static final int HALTED = 137;
    private static final int CALL_MS = 60_000;

    private final Options options;
    private final PrintStream output = JsonLines.output();
    private final CountDownLatch mayGoOn = new CountDownLatch(1);
    private final Random chance;
    private final double haltChance;
    private final int abortEvery;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean ended;
    private String pauseAt;
    private int turns;

    private Transform(Options options) {
        this.options = options;
        pauseAt = options.get("pause-at", "");
        abortEvery = options.integer("abort-every", 0);
        haltChance = Double.parseDouble(options.get("halt-chance", "0"));
        chance = new Random(options.integer("seed", 0));
        producer = new KafkaProducer<>(configureProducer(options), new ByteArraySerializer(), new ByteArraySerializer());
        consumer = new KafkaConsumer<>(
                configureConsumer(options), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** False if the client gave up. */
    static boolean run(Options options) {
        Transform loop = new Transform(options);
        loop.listen();
        try {
            loop.turnUntilEnded();
        } catch (KafkaException failure) {
            failure.printStackTrace();
            loop.say("failed", "error", failure.getClass().getSimpleName());
            return false;
        }
        loop.say("closed", null, null);
        return true;
    }

    private void listen() {
        Thread listener = new Thread(() -> {
            try {
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
                while (lines.readLine() != null) {
                    mayGoOn.countDown();
                }
            } catch (IOException failure) {
                failure.printStackTrace();
            }
            ended = true;
            mayGoOn.countDown();
        });
        listener.setDaemon(true);
        listener.start();
    }

    private void turnUntilEnded() {
        patiently(producer::initTransactions);
        consumer.subscribe(List.of(options.get("input")), new InTurns());
        say("ready", null, null);
        while (!ended) {
            turn();
        }
        consumer.close();
        producer.close();
    }

    /**
     * Without a listener a consumer may give partitions up at any time, and be given others. With one it does so between
     * two turns only, so that what a turn has read belongs to the membership that it commits with.
     */
    private static final class InTurns implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }

    private void turn() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        turns++;
        boolean aborts = abortEvery > 0 && turns % abortEvery == 0;
        try {
            producer.beginTransaction();
            at("begun", records);
            produce(records);
            at("produced", records);
            patiently(() -> producer.sendOffsetsToTransaction(positionsAfter(records), consumer.groupMetadata()));
            at("offset", records);
            if (!aborts) {
                at("committing", records);
                patiently(producer::commitTransaction);
                at("committed", records);
                return;
            }
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException mustAbort) {
            System.err.println("it must abort: " + mustAbort);
        }
        patiently(producer::abortTransaction);
        at("aborted", records);
        rewind();
    }

    private void produce(ConsumerRecords<byte[], byte[]> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(
                    new ProducerRecord<>(options.get("output"), record.partition(), record.key(), record.value()));
        }
        producer.flush();
    }

    private static Map<TopicPartition, OffsetAndMetadata> positionsAfter(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            positions.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return positions;
    }

    /** Goes back to where the last committed transaction of anybody ended. */
    private void rewind() {
        patiently(() -> consumer.committed(consumer.assignment()).forEach((place, position) -> {
            if (position == null) {
                consumer.seekToBeginning(List.of(place));
            } else {
                consumer.seek(place, position.offset());
            }
        }));
    }

    /** What may be tried again is. */
    private static void patiently(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException again) {
                System.err.println("once more: " + again);
            }
        }
    }

    private void at(String step, ConsumerRecords<byte[], byte[]> records) {
        JsonArray values = new JsonArray();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            values.add(new String(record.value(), StandardCharsets.UTF_8));
        }
        JsonObject line = new JsonObject();
        line.addProperty("step", step);
        line.add("values", values);
        print(line);
        if (chance.nextDouble() < haltChance) {
            Runtime.getRuntime().halt(HALTED);
        }
        if (step.equals(pauseAt)) {
            pauseAt = "";
            try {
                mayGoOn.await();
            } catch (InterruptedException gone) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void say(String step, String name, String value) {
        JsonObject line = new JsonObject();
        line.addProperty("step", step);
        if (name != null) {
            line.addProperty(name, value);
        }
        print(line);
    }

    private void print(JsonObject line) {
        output.println(JsonLines.line(line));
        output.flush();
    }

    private static Properties configureProducer(Options options) {
        Properties config = new Properties();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, options.get("transactional-id"));
        config.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, options.integer("transaction-ms", 60_000));
        config.put(ProducerConfig.LINGER_MS_CONFIG, 0);
        config.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 20);
        config.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 200);
        config.put(ProducerConfig.METADATA_MAX_AGE_CONFIG, 2_000);
        // A broker that is paused answers nothing, and nobody closes its connections.
        config.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        config.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 120_000);
        config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, CALL_MS);
        return config;
    }

    private static Properties configureConsumer(Options options) {
        boolean classic = options.get("protocol", "classic").equals("classic");
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(ConsumerConfig.GROUP_ID_CONFIG, options.get("group"));
        config.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, classic ? "classic" : "consumer");
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, options.integer("batch", 10));
        config.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50);
        config.put(ConsumerConfig.RETRY_BACKOFF_MS_CONFIG, 20);
        config.put(ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 200);
        config.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, 2_000);
        config.put(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        if (classic) {
            config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, options.integer("session-ms", 6_000));
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500);
        }
        return config;
    }
}
