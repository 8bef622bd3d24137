package tidelog.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.common.Node;

/** Admin calls on the cluster as a whole. */
final class ClusterActions {
    private ClusterActions() {}

    static Object describe(Admin admin, Options options) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<Object> brokers = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            brokers.add(Map.of("id", node.id(), "host", node.host(), "port", node.port()));
        }
        return Map.of(
                "cluster_id", cluster.clusterId().get(),
                "controller", cluster.controller().get().id(),
                "brokers", brokers);
    }

    static Object describeLogDirs(Admin admin, Options options) throws Exception {
        List<Integer> brokers = new ArrayList<>();
        for (Node node : admin.describeCluster().nodes().get()) {
            brokers.add(node.id());
        }
        List<Object> dirs = new ArrayList<>();
        for (Map.Entry<Integer, Map<String, LogDirDescription>> broker :
                admin.describeLogDirs(brokers).allDescriptions().get().entrySet()) {
            for (Map.Entry<String, LogDirDescription> dir : new TreeMap<>(broker.getValue()).entrySet()) {
                dirs.add(describeDir(broker.getKey(), dir.getKey(), dir.getValue()));
            }
        }
        return Map.of("dirs", dirs);
    }

    private static Object describeDir(int broker, String path, LogDirDescription dir) {
        if (dir.error() != null) {
            throw dir.error();
        }
        List<Object> partitions = new ArrayList<>();
        dir.replicaInfos().forEach((partition, replica) -> partitions.add(Map.of(
                "topic", partition.topic(),
                "partition", partition.partition(),
                "size", replica.size(),
                "offset_lag", replica.offsetLag())));
        return Map.of(
                "broker", broker,
                "dir", path,
                "total_bytes", dir.totalBytes().orElse(-1L),
                "usable_bytes", dir.usableBytes().orElse(-1L),
                "partitions", partitions);
    }
}
