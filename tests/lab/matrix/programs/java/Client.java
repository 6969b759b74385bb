import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The scenario of tests/lab/matrix/scenario.py by Kafka's own clients, from 2.1 to the newest. */
public final class Client {
    interface Step {
        Map<String, Object> run() throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();
    static final int COUNT = 30, PARTITIONS = 3;
    static final long SECONDS = 90;
    static String bootstrap, topic, made, group, transactionalId;
    static List<String> only = List.of();

    public static void main(String[] names) throws Exception {
        bootstrap = names[0];
        topic = names[1];
        made = names[2];
        group = names[3];
        transactionalId = names[4];
        only = List.of(names).subList(5, names.length);
        tell("client", () -> Map.of("version", version()));
        tell("produce", () -> Map.of("topics", produce("v")));
        tell("consume", Client::consume);
        tell("group", Client::group);
        tell("transactions", Client::transactions);
        tell("admin", Client::admin);
        tell("brokers", Client::brokers);
        if (only.contains("traffic")) {
            tell("traffic", Traffic::run);
        }
        System.exit(0);
    }

    /** The release of the Kafka client on the class path; the class that reports it moved in 4.4. */
    static String version() throws Exception {
        Properties about = new Properties();
        try (InputStream file = Client.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            about.load(file);
        }
        return about.getProperty("version");
    }

    static void tell(String name, Step step) throws Exception {
        if (!only.isEmpty() && !only.contains(name) && !name.equals("client")) {
            return;
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        try {
            line.putAll(step.run());
        } catch (Throwable problem) {
            line.put("error", problem.toString());
        }
        System.out.println(JSON.writeValueAsString(line));
    }

    static Properties settings(Map<String, String> more) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        found.putAll(more);
        return found;
    }

    static KafkaProducer<String, String> producer(Map<String, String> more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    static TreeSet<String> send(KafkaProducer<String, String> producer, String word) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            sent.add(producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, word + "-" + number)));
        }
        producer.flush();
        TreeSet<String> topics = new TreeSet<>();
        for (Future<RecordMetadata> one : sent) {
            topics.add(one.get(SECONDS, TimeUnit.SECONDS).topic());
        }
        return topics;
    }

    static TreeSet<String> produce(String word) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            return send(producer, word);
        }
    }

    /** A consumer from the beginning that does not commit by itself, with what it has received. */
    static final class Member implements AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final List<ConsumerRecord<String, String>> found = new ArrayList<>();

        Member(String group, Map<String, String> more) {
            this(group, more, "10000");
        }

        Member(String group, Map<String, String> more, String session) {
            Map<String, String> all = new HashMap<>(more);
            all.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                "session.timeout.ms", session, "heartbeat.interval.ms", "500"));
            consumer = new KafkaConsumer<>(settings(all), new StringDeserializer(), new StringDeserializer());
        }

        List<String> values() {
            List<String> values = new ArrayList<>();
            found.forEach(record -> values.add(record.value()));
            return values;
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static void poll(Collection<Member> members, BooleanSupplier enough) {
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!enough.getAsBoolean()) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException("not enough was received");
            }
            for (Member member : members) {
                member.consumer.poll(Duration.ofMillis(100)).forEach(member.found::add);
            }
        }
    }

    static TreeSet<String> topics(Collection<Member> members) {
        TreeSet<String> topics = new TreeSet<>();
        for (Member member : members) {
            member.found.forEach(record -> topics.add(record.topic()));
            member.consumer.assignment().forEach(place -> topics.add(place.topic()));
        }
        return topics;
    }

    static Map<String, Object> consume() {
        try (Member member = new Member(group, Map.of())) {
            member.consumer.subscribe(List.of(topic));
            poll(List.of(member), () -> member.found.size() >= COUNT);
            member.consumer.commitSync();
            return Map.of("topics", topics(List.of(member)), "values", member.values());
        }
    }

    static Map<String, Object> group() throws Exception {
        try (Member first = new Member(group, Map.of()); Member second = new Member(group, Map.of())) {
            List<Member> both = List.of(first, second);
            both.forEach(member -> member.consumer.subscribe(List.of(topic)));
            poll(both, () -> both.stream().noneMatch(member -> member.consumer.assignment().isEmpty()));
            TreeSet<String> topics = topics(both);
            produce("w");
            TreeSet<String> values = new TreeSet<>();
            poll(both, () -> {
                both.forEach(member -> values.addAll(member.values()));
                return values.size() >= COUNT;
            });
            List<Integer> shares = List.of(first.found.size(), second.found.size());
            both.forEach(member -> member.consumer.commitSync());
            second.close();
            poll(List.of(first), () -> first.consumer.assignment().size() == PARTITIONS);  // or records would be read twice
            produce("x");
            poll(List.of(first), () -> first.values().stream().filter(one -> one.startsWith("x")).distinct().count() >= COUNT);
            values.addAll(first.values());
            first.consumer.commitSync();
            topics.addAll(topics(List.of(first)));
            long committed = 0;
            for (int number = 0; number < PARTITIONS; number++) {
                committed += committed(first, number);
            }
            return Map.of("topics", topics, "values", values, "shares", shares, "committed", committed);
        }
    }

    @SuppressWarnings({"unchecked", "deprecation"})
    static long committed(Member member, int number) throws Exception {
        TopicPartition place = new TopicPartition(topic, number);
        try {  // since 2.4
            Object all = KafkaConsumer.class.getMethod("committed", java.util.Set.class)
                .invoke(member.consumer, Collections.singleton(place));
            return ((Map<TopicPartition, OffsetAndMetadata>) all).get(place).offset();
        } catch (NoSuchMethodException old) {
            Object one = KafkaConsumer.class.getMethod("committed", TopicPartition.class).invoke(member.consumer, place);
            return ((OffsetAndMetadata) one).offset();
        }
    }

    /** As committed(), once the transaction that committed it has ended on its partition. */
    static long committedSoon(Member member) throws Exception {
        for (int turn = 1; ; turn++) {
            try {
                return committed(member, 0);
            } catch (NullPointerException early) {
                if (turn == SECONDS * 10) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
    }

    static void sendOffsets(KafkaProducer<String, String> producer, Member member, String group) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7));
        try {  // since 2.5, and the only one since 4.0
            Object who = KafkaConsumer.class.getMethod("groupMetadata").invoke(member.consumer);
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, kind).invoke(producer, offsets, who);
        } catch (NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
                .invoke(producer, offsets, group);
        }
    }

    static Map<String, Object> transactions() throws Exception {
        String offsets = group + "-offsets";
        try (Member reader = new Member(offsets, Map.of("isolation.level", "read_committed"))) {
            try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", transactionalId))) {
                producer.initTransactions();
                for (String word : List.of("aborted", "kept")) {
                    producer.beginTransaction();
                    send(producer, word);
                    sendOffsets(producer, reader, offsets);
                    if (word.equals("kept")) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                }
            }
            List<TopicPartition> places = new ArrayList<>();
            for (int number = 0; number < PARTITIONS; number++) {
                places.add(new TopicPartition(topic, number));
            }
            reader.consumer.assign(places);
            reader.consumer.seekToBeginning(places);
            poll(List.of(reader), () -> reader.values().stream().filter(one -> one.startsWith("kept")).count() >= COUNT);
            List<String> words = new ArrayList<>(reader.values());
            words.removeIf(value -> !value.startsWith("kept") && !value.startsWith("aborted"));
            return Map.of("topics", topics(List.of(reader)), "values", words, "committed", committedSoon(reader));
        }
    }

    static <T> T get(Future<T> answer) throws Exception {
        return answer.get(SECONDS, TimeUnit.SECONDS);
    }

    static TreeSet<String> waitFor(AdminClient admin, boolean there) throws Exception {
        for (int turn = 0; turn < SECONDS * 10; turn++) {
            TreeSet<String> names = new TreeSet<>(get(admin.listTopics().names()));
            if (names.contains(made) == there) {
                return names;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException(made + (there ? " is not there" : " is still there"));
    }

    /** As partitions(), once the broker that is asked has heard of MADE. */
    static int partitionsSoon(AdminClient admin) throws Exception {
        for (int turn = 1; ; turn++) {
            try {
                return partitions(admin);
            } catch (java.util.concurrent.ExecutionException early) {
                if (turn == SECONDS * 10) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
    }

    /** The number of partitions of MADE, by the name of the method that this version has. */
    static int partitions(AdminClient admin) throws Exception {
        Object answer = admin.describeTopics(List.of(made));
        java.lang.reflect.Method method;
        try {
            method = answer.getClass().getMethod("topicNameValues");
        } catch (NoSuchMethodException old) {
            method = answer.getClass().getMethod("values");
        }
        Object described = get((Future<?>) ((Map<?, ?>) method.invoke(answer)).get(made));
        return ((org.apache.kafka.clients.admin.TopicDescription) described).partitions().size();
    }

    static Map<String, Object> admin() throws Exception {
        try (AdminClient admin = AdminClient.create(settings(Map.of()))) {
            get(admin.createTopics(List.of(new NewTopic(made, 2, (short) 1))).all());
            Map<String, Object> line = new HashMap<>();
            line.put("listed", waitFor(admin, true));
            line.put("partitions", partitionsSoon(admin));
            TreeSet<String> groups = new TreeSet<>();
            get(admin.listConsumerGroups().all()).forEach(one -> groups.add(one.groupId()));
            line.put("groups", groups);
            ConsumerGroupDescription described = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            line.put("described", described.groupId());
            line.put("members", described.members().size());
            get(admin.deleteTopics(List.of(made)).all());
            waitFor(admin, false);
            return line;
        }
    }

    static Map<String, Object> brokers() throws Exception {
        try (AdminClient admin = AdminClient.create(settings(Map.of()))) {
            TreeSet<String> addresses = new TreeSet<>();
            get(admin.describeCluster().nodes()).forEach(node -> addresses.add(node.host() + ":" + node.port()));
            return Map.of("addresses", addresses);
        }
    }
}
