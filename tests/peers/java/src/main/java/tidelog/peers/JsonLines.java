package tidelog.peers;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records as lines of JSON: bytes are base64, headers are pairs. */
final class JsonLines {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private JsonLines() {}

    static PrintStream output() {
        return new PrintStream(System.out, false, StandardCharsets.UTF_8);
    }

    static String line(JsonElement element) {
        return GSON.toJson(element);
    }

    static String line(Object value) {
        return GSON.toJson(value);
    }

    static ProducerRecord<byte[], byte[]> toRecord(String topic, String line) {
        JsonObject json = JsonParser.parseString(line).getAsJsonObject();
        JsonElement timestamp = json.get("timestamp");
        List<Header> headers = new ArrayList<>();
        for (JsonElement pair : json.getAsJsonArray("headers")) {
            JsonArray parts = pair.getAsJsonArray();
            headers.add(new RecordHeader(parts.get(0).getAsString(), decode(parts.get(1))));
        }
        return new ProducerRecord<>(
                topic,
                json.get("partition").isJsonNull() ? null : json.get("partition").getAsInt(),
                timestamp == null || timestamp.isJsonNull() ? null : timestamp.getAsLong(),
                decode(json.get("key")),
                decode(json.get("value")),
                headers);
    }

    static JsonObject fromRecord(ConsumerRecord<byte[], byte[]> record) {
        JsonObject json = new JsonObject();
        json.addProperty("partition", record.partition());
        json.addProperty("offset", record.offset());
        json.addProperty("timestamp", record.timestamp());
        json.addProperty("timestamp_type", record.timestampType().toString());
        json.add("key", encode(record.key()));
        json.add("value", encode(record.value()));
        JsonArray headers = new JsonArray();
        for (Header header : record.headers()) {
            JsonArray pair = new JsonArray();
            pair.add(header.key());
            pair.add(encode(header.value()));
            headers.add(pair);
        }
        json.add("headers", headers);
        return json;
    }

    private static byte[] decode(JsonElement base64) {
        return base64.isJsonNull() ? null : Base64.getDecoder().decode(base64.getAsString());
    }

    private static JsonElement encode(byte[] bytes) {
        return bytes == null ? JsonNull.INSTANCE : new JsonPrimitive(Base64.getEncoder().encodeToString(bytes));
    }
}
