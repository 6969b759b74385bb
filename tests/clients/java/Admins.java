import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;

/** What an administrator asks for: {config, steps: [[operation, argument, ...], ...]}, the list of the answers. */
final class Admins {
    interface Step {
        Object run(Admin admin, JsonNode step) throws Exception;
    }

    private static final Map<String, Step> STEPS = new HashMap<>();

    static {
        STEPS.put("nodes", Admins::nodes);
        STEPS.put("list", (admin, step) -> new TreeSet<>(admin.listTopics().names().get()));
        STEPS.put("create", Admins::create);
        STEPS.put("describe", Admins::describe);
        STEPS.put("name_of_id", Admins::nameOfId);
        STEPS.put("add_partitions", Admins::addPartitions);
        STEPS.put("set_config", Admins::setConfig);
        STEPS.put("get_config", Admins::getConfig);
        STEPS.put("delete_records", Admins::deleteRecords);
        STEPS.put("offsets", Admins::offsets);
        STEPS.put("delete", (admin, step) -> admin.deleteTopics(Data.strings(step.get(1))).all().get());
        STEPS.put("delete_by_id", Admins::deleteById);
        STEPS.put("groups", Admins::groups);
        STEPS.put("members", Admins::members);
        STEPS.put("group_offsets", Admins::groupOffsets);
        STEPS.put("set_group_offset", Admins::setGroupOffset);
        STEPS.put("forget_group_offset", Admins::forgetGroupOffset);
        STEPS.put("delete_group", (admin, step) -> admin.deleteConsumerGroups(Data.strings(step.get(1))).all().get());
        STEPS.put("move", Admins::move);
        STEPS.put("elect", Admins::elect);
        STEPS.put("log_dirs", Admins::logDirs);
        STEPS.put("allow", Admins::allow);
        STEPS.put("acls", Admins::acls);
        STEPS.put("revoke", Admins::revoke);
        STEPS.put("try", Tenants::attempt);
        STEPS.put("transactions", Tenants::transactions);
        STEPS.put("transaction", Tenants::transaction);
        STEPS.put("elect_all", Tenants::electAll);
        STEPS.put("allow_any", Tenants::allow);
        STEPS.put("all_acls", Tenants::acls);
        STEPS.put("revoke_all", Tenants::revoke);
        STEPS.put("config_resources", Tenants::configs);
    }

    static Object run(JsonNode request) throws Exception {
        List<Object> answers = new ArrayList<>();
        try (Admin admin = Admin.create(Clients.properties(request.get("config")))) {
            for (JsonNode step : request.get("steps")) {
                answers.add(one(admin, step));
            }
        }
        return answers;
    }

    static Object one(Admin admin, JsonNode step) throws Exception {
        return STEPS.get(step.get(0).asText()).run(admin, step);
    }

    private static Object nodes(Admin admin, JsonNode step) throws Exception {
        Map<String, String> found = new TreeMap<>();
        for (Node node : admin.describeCluster().nodes().get()) {
            found.put(node.idString(), node.host() + ":" + node.port());
        }
        return found;
    }

    private static Object create(Admin admin, JsonNode step) throws Exception {
        NewTopic topic = new NewTopic(step.get(1).asText(), step.get(2).asInt(), (short) step.get(3).asInt());
        if (step.has(4)) {
            topic.configs(strings(step.get(4)));
        }
        return admin.createTopics(List.of(topic)).topicId(step.get(1).asText()).get().toString();
    }

    private static TopicDescription topic(Admin admin, JsonNode step) throws Exception {
        String name = step.get(1).asText();
        return admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
    }

    private static Object describe(Admin admin, JsonNode step) throws Exception {
        TopicDescription topic = topic(admin, step);
        List<Object> leaders = new ArrayList<>();
        List<Object> replicas = new ArrayList<>();
        for (TopicPartitionInfo partition : topic.partitions()) {
            leaders.add(partition.leader() == null ? -1 : partition.leader().id());
            replicas.add(partition.replicas().stream().map(Node::id).toList());
        }
        return Map.of("name", topic.name(), "id", topic.topicId().toString(), "leaders", leaders, "replicas", replicas);
    }

    private static Object nameOfId(Admin admin, JsonNode step) throws Exception {
        Uuid id = Uuid.fromString(step.get(1).asText());
        return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name();
    }

    private static Object addPartitions(Admin admin, JsonNode step) throws Exception {
        Map<String, NewPartitions> more = Map.of(step.get(1).asText(), NewPartitions.increaseTo(step.get(2).asInt()));
        return admin.createPartitions(more).all().get();
    }

    private static ConfigResource resource(JsonNode step) {
        ConfigResource.Type type = ConfigResource.Type.valueOf(step.get(1).asText());
        return new ConfigResource(type, step.get(2).asText());
    }

    private static Object setConfig(Admin admin, JsonNode step) throws Exception {
        ConfigEntry entry = new ConfigEntry(step.get(3).asText(), step.get(4).asText());
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(resource(step), List.of(change))).all().get();
    }

    private static Object getConfig(Admin admin, JsonNode step) throws Exception {
        ConfigResource resource = resource(step);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(step.get(3).asText()).value();
    }

    private static Object deleteRecords(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(1).asText(), step.get(2).asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(step.get(3).asLong());
        return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
    }

    private static Object offsets(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(1).asText(), step.get(2).asInt());
        List<Object> found = new ArrayList<>();
        for (OffsetSpec which : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
            found.add(admin.listOffsets(Map.of(partition, which)).partitionResult(partition).get().offset());
        }
        return found;
    }

    private static Object deleteById(Admin admin, JsonNode step) throws Exception {
        Uuid id = Uuid.fromString(step.get(1).asText());
        return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
    }

    private static Object groups(Admin admin, JsonNode step) throws Exception {
        Set<String> found = new TreeSet<>();
        admin.listGroups().all().get().forEach(group -> found.add(group.groupId()));
        return found;
    }

    private static Object members(Admin admin, JsonNode step) throws Exception {
        String name = step.get(1).asText();
        ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        Set<String> assigned = new TreeSet<>();
        for (MemberDescription member : group.members()) {
            member.assignment().topicPartitions().forEach(partition -> assigned.add(partition.toString()));
        }
        return Map.of(
                "type", group.type().toString(),
                "state", group.groupState().toString(),
                "members", group.members().size(),
                "assigned", assigned);
    }

    private static Object groupOffsets(Admin admin, JsonNode step) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        String group = step.get(1).asText();
        Map<TopicPartition, OffsetAndMetadata> offsets =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        offsets.forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
        return found;
    }

    private static Object setGroupOffset(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(2).asText(), step.get(3).asInt());
        OffsetAndMetadata offset = new OffsetAndMetadata(step.get(4).asLong());
        return admin.alterConsumerGroupOffsets(step.get(1).asText(), Map.of(partition, offset)).all().get();
    }

    private static Object forgetGroupOffset(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(2).asText(), step.get(3).asInt());
        return admin.deleteConsumerGroupOffsets(step.get(1).asText(), Set.of(partition)).all().get();
    }

    /** [move, topic, partition, [nodes]]: give the partition these replicas, the first of them its preferred leader. */
    private static Object move(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(1).asText(), step.get(2).asInt());
        List<Integer> replicas = new ArrayList<>();
        step.get(3).forEach(node -> replicas.add(node.asInt()));
        NewPartitionReassignment target = new NewPartitionReassignment(replicas);
        return admin.alterPartitionReassignments(Map.of(partition, Optional.of(target))).all().get();
    }

    private static Object elect(Admin admin, JsonNode step) throws Exception {
        TopicPartition partition = new TopicPartition(step.get(1).asText(), step.get(2).asInt());
        return admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition)
                .map(Throwable::toString)
                .orElse("");
    }

    private static Object logDirs(Admin admin, JsonNode step) throws Exception {
        Set<String> found = new TreeSet<>();
        List<Integer> nodes = admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        admin.describeLogDirs(nodes).allDescriptions().get().values().forEach(folders -> folders.values()
                .forEach(folder -> folder.replicaInfos().keySet().forEach(partition -> found.add(partition.topic()))));
        return found;
    }

    /** [allow, LITERAL | PREFIXED, topic, user]: let that user, and nobody else, read the topics of that name. */
    private static Object allow(Admin admin, JsonNode step) throws Exception {
        PatternType type = PatternType.valueOf(step.get(1).asText());
        ResourcePattern pattern = new ResourcePattern(ResourceType.TOPIC, step.get(2).asText(), type);
        String user = "User:" + step.get(3).asText();
        AccessControlEntry entry = new AccessControlEntry(user, "*", AclOperation.ALL, AclPermissionType.ALLOW);
        return admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
    }

    /** [acls, topic]: the patterns that concern the topic, as "LITERAL name" or "PREFIXED name". */
    private static Object acls(Admin admin, JsonNode step) throws Exception {
        return patterns(admin.describeAcls(about(step)).values().get());
    }

    /** [revoke, topic]: delete those; the same words for what was deleted. */
    private static Object revoke(Admin admin, JsonNode step) throws Exception {
        return patterns(admin.deleteAcls(List.of(about(step))).all().get());
    }

    private static AclBindingFilter about(JsonNode step) {
        ResourcePatternFilter topic =
                new ResourcePatternFilter(ResourceType.TOPIC, step.get(1).asText(), PatternType.MATCH);
        return new AclBindingFilter(topic, AccessControlEntryFilter.ANY);
    }

    private static Set<String> patterns(Collection<AclBinding> found) {
        Set<String> words = new TreeSet<>();
        found.forEach(acl -> words.add(acl.pattern().patternType() + " " + acl.pattern().name()));
        return words;
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }
}
