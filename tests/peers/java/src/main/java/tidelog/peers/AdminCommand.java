package tidelog.peers;

import java.io.PrintStream;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/** One admin call: prints its result, or the protocol's name of the error that the broker answered, as JSON. */
final class AdminCommand {
    /** What an action does with the client; the value it returns is printed. */
    interface Action {
        Object perform(Admin admin, Options options) throws Exception;
    }

    private static final Map<String, Action> ACTIONS = Map.ofEntries(
            Map.entry("create-topic", TopicActions::create),
            Map.entry("list-topics", TopicActions::list),
            Map.entry("describe-topic", TopicActions::describe),
            Map.entry("delete-topic", TopicActions::delete),
            Map.entry("create-partitions", TopicActions::createPartitions),
            Map.entry("list-offsets", TopicActions::listOffsets),
            Map.entry("delete-records", TopicActions::deleteRecords),
            Map.entry("get-configs", ConfigActions::get),
            Map.entry("set-configs", ConfigActions::set),
            Map.entry("list-groups", GroupActions::list),
            Map.entry("describe-group", GroupActions::describe),
            Map.entry("delete-group", GroupActions::delete),
            Map.entry("list-group-offsets", GroupActions::listOffsets),
            Map.entry("alter-group-offsets", GroupActions::alterOffsets),
            Map.entry("delete-group-offsets", GroupActions::deleteOffsets),
            Map.entry("remove-group-member", GroupActions::removeMember),
            Map.entry("describe-cluster", ClusterActions::describe),
            Map.entry("describe-log-dirs", ClusterActions::describeLogDirs));

    private AdminCommand() {}

    static void run(String[] args) throws Exception {
        Action action = args.length == 0 ? null : ACTIONS.get(args[0]);
        if (action == null) {
            throw new IllegalArgumentException("unknown admin action in " + Arrays.toString(args));
        }
        Options options = new Options(Arrays.copyOfRange(args, 1, args.length));
        Properties config = new Properties();
        config.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        config.put(AdminClientConfig.CLIENT_ID_CONFIG, "tidelog-peer-java");
        config.put(AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, 10_000);
        config.put(AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, 20_000);
        PrintStream output = JsonLines.output();
        try (Admin admin = Admin.create(config)) {
            output.println(JsonLines.line(action.perform(admin, options)));
        } catch (ExecutionException failure) {
            if (!(failure.getCause() instanceof ApiException)) {
                throw failure;
            }
            output.println(JsonLines.line(Map.of("error", Errors.forException(failure.getCause()).name())));
        }
        output.flush();
    }
}
