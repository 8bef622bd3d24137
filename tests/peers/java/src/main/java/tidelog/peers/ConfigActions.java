package tidelog.peers;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;

/** Admin calls on the settings of topics and brokers. */
final class ConfigActions {
    private ConfigActions() {}

    private static ConfigResource resource(Options options) {
        ConfigResource.Type type =
                options.get("resource", "topic").equals("broker") ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        return new ConfigResource(type, options.get("name"));
    }

    static Object get(Admin admin, Options options) throws Exception {
        ConfigResource resource = resource(options);
        JsonObject configs = new JsonObject();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).values().get(resource).get().entries()) {
            JsonObject config = new JsonObject();
            config.addProperty("value", entry.value());
            config.addProperty("source", entry.source().name());
            config.addProperty("sensitive", entry.isSensitive());
            configs.add(entry.name(), config);
        }
        return Map.of("configs", configs);
    }

    static Object set(Admin admin, Options options) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        add(changes, OpType.SET, options.pairs("set"));
        add(changes, OpType.DELETE, options.pairs("delete"));
        add(changes, OpType.APPEND, options.pairs("append"));
        add(changes, OpType.SUBTRACT, options.pairs("subtract"));
        admin.incrementalAlterConfigs(
                        Map.of(resource(options), changes),
                        new AlterConfigsOptions().validateOnly(options.flag("validate-only")))
                .all()
                .get();
        return Map.of();
    }

    private static void add(List<AlterConfigOp> changes, OpType operation, Map<String, String> pairs) {
        pairs.forEach((key, value) -> changes.add(new AlterConfigOp(new ConfigEntry(key, value), operation)));
    }
}
