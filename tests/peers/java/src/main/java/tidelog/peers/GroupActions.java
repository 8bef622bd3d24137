package tidelog.peers;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsResult;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Admin calls on consumer groups. */
final class GroupActions {
    private GroupActions() {}

    static Object list(Admin admin, Options options) throws Exception {
        Map<String, Object> groups = new TreeMap<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            groups.put(group.groupId(), Map.of(
                    "type", group.type().map(Object::toString).orElse(""),
                    "state", group.groupState().map(Object::toString).orElse(""),
                    "protocol", group.protocol()));
        }
        return Map.of("groups", groups);
    }

    static Object describe(Admin admin, Options options) throws Exception {
        String name = options.get("group");
        ConsumerGroupDescription group =
                admin.describeConsumerGroups(List.of(name)).describedGroups().get(name).get();
        List<Object> members = new ArrayList<>();
        for (MemberDescription member : group.members()) {
            members.add(describeMember(member));
        }
        return Map.of(
                "state", group.groupState().toString(),
                "type", group.type().toString(),
                "assignor", group.partitionAssignor(),
                "coordinator", group.coordinator().id(),
                "members", members);
    }

    private static Object describeMember(MemberDescription member) {
        Map<String, Object> described = new HashMap<>();
        described.put("id", member.consumerId());
        described.put("instance", member.groupInstanceId().orElse(null));
        described.put("client", member.clientId());
        described.put("host", member.host());
        described.put("assignment", places(member.assignment().topicPartitions()));
        described.put("target", member.targetAssignment().map(it -> places(it.topicPartitions())).orElse(null));
        described.put("epoch", member.memberEpoch().orElse(null));
        described.put("upgraded", member.upgraded().orElse(null));
        return described;
    }

    static Object delete(Admin admin, Options options) throws Exception {
        admin.deleteConsumerGroups(options.all("group")).all().get();
        return Map.of();
    }

    static Object listOffsets(Admin admin, Options options) throws Exception {
        ListConsumerGroupOffsetsResult found = admin.listConsumerGroupOffsets(options.get("group"));
        List<Object> positions = new ArrayList<>();
        found.partitionsToOffsetAndMetadata().get().forEach((place, position) ->
                positions.add(List.of(place.topic(), place.partition(), position.offset())));
        return Map.of("positions", positions);
    }

    /** Each {@code --set topic:partition=offset}. */
    static Object alterOffsets(Admin admin, Options options) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        options.pairs("set").forEach(
                (place, offset) -> wanted.put(parse(place), new OffsetAndMetadata(Long.parseLong(offset))));
        admin.alterConsumerGroupOffsets(options.get("group"), wanted).all().get();
        return Map.of();
    }

    static Object deleteOffsets(Admin admin, Options options) throws Exception {
        Set<TopicPartition> places = new HashSet<>();
        options.all("place").forEach(place -> places.add(parse(place)));
        admin.deleteConsumerGroupOffsets(options.get("group"), places).all().get();
        return Map.of();
    }

    static Object removeMember(Admin admin, Options options) throws Exception {
        RemoveMembersFromConsumerGroupOptions removed =
                new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove(options.get("instance"))));
        admin.removeMembersFromConsumerGroup(options.get("group"), removed).all().get();
        return Map.of();
    }

    private static TopicPartition parse(String place) {
        int colon = place.lastIndexOf(':');
        return new TopicPartition(place.substring(0, colon), Integer.parseInt(place.substring(colon + 1)));
    }

    private static List<Object> places(Set<TopicPartition> partitions) {
        List<Object> places = new ArrayList<>();
        partitions.forEach(place -> places.add(List.of(place.topic(), place.partition())));
        return places;
    }
}
