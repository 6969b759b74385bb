import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * The scenario of tests/lab/matrix/scenario.py by Kafka Streams: a word count, exactly once, of the two words on each side of
 * the dash. It reads TOPIC, counts in a repartition and a changelog topic of its own, and writes to MADE, which is made
 * first. Two instances with the application id GROUP are the two members; what is told as values are the final counts.
 */
public final class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int COUNT = 30, PARTITIONS = 3;
    static final long SECONDS = 120;
    static String bootstrap, topic, made, group;
    static Instance first, second;

    /** A running word count that counts the lines it read. */
    static final class Instance {
        final AtomicInteger lines = new AtomicInteger();
        final KafkaStreams streams;

        Instance(String name) throws Exception {
            StreamsBuilder builder = new StreamsBuilder();
            builder.<String, String>stream(topic)
                .peek((key, line) -> lines.incrementAndGet())
                .flatMap((key, line) -> Arrays.stream(line.split("-")).map(word -> KeyValue.pair(word, word)).toList())
                .groupByKey(Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream().to(made, Produced.with(Serdes.String(), Serdes.Long()));
            Properties settings = settings(Map.of(
                "application.id", group, "processing.guarantee", "exactly_once_v2", "client.id", name,
                "auto.offset.reset", "earliest", "commit.interval.ms", "200", "session.timeout.ms", "10000",
                "heartbeat.interval.ms", "500", "state.dir", java.nio.file.Files.createTempDirectory("counts").toString()));
            settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            streams = new KafkaStreams(builder.build(), settings);
            streams.start();
        }

        boolean works() {
            return streams.state() == KafkaStreams.State.RUNNING
                && streams.metadataForLocalThreads().stream().anyMatch(thread -> thread.activeTasks().stream()
                    .flatMap(task -> task.topicPartitions().stream()).anyMatch(place -> place.topic().equals(topic)));
        }
    }

    public static void main(String[] names) throws Exception {
        bootstrap = names[0];
        topic = names[1];
        made = names[2];
        group = names[3];
        tell("client", () -> Map.of("version", version()));
        try (Admin admin = Admin.create(settings(Map.of()))) {
            tell("produce", () -> {
                get(admin.createTopics(List.of(new NewTopic(made, 2, (short) 1))).all());
                return Map.of("topics", produce("v"));
            });
            tell("consume", () -> {
                first = new Instance("first");
                return counts(2 * COUNT, "read_committed");
            });
            tell("group", () -> share(admin));
            tell("transactions", () -> {
                Map<String, Object> line = new HashMap<>(counts(6 * COUNT, "read_committed"));
                line.put("committed", committed(admin));
                return line;
            });
            first.streams.close(new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(30)));
            tell("admin", () -> administration(admin));
            tell("brokers", () -> {
                TreeSet<String> found = new TreeSet<>();
                get(admin.describeCluster().nodes()).forEach(node -> found.add(node.host() + ":" + node.port()));
                return Map.of("addresses", found);
            });
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

    static void tell(String name, Callable<Map<String, Object>> step) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("step", name);
        try {
            line.putAll(step.call());
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

    static <T> T get(Future<T> answer) throws Exception {
        return answer.get(SECONDS, TimeUnit.SECONDS);
    }

    static void until(Callable<Boolean> condition, String what) throws Exception {
        long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.call()) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException(what);
            }
            Thread.sleep(100);
        }
    }

    static TreeSet<String> produce(String word) throws Exception {
        StringSerializer text = new StringSerializer();
        TreeSet<String> topics = new TreeSet<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(Map.of()), text, text)) {
            for (int number = 0; number < COUNT; number++) {
                String line = word + "-" + number;
                topics.add(get(producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, line))).topic());
            }
        }
        return topics;
    }

    /** The last count of each word in MADE, once they are so many in sum. */
    static Map<String, Object> counts(long sum, String isolation) throws Exception {
        Map<String, Long> last = new TreeMap<>();
        TreeSet<String> topics = new TreeSet<>();
        Properties settings = settings(Map.of("isolation.level", isolation, "auto.offset.reset", "earliest"));
        try (KafkaConsumer<String, Long> reader =
                new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> places = List.of(new TopicPartition(made, 0), new TopicPartition(made, 1));
            reader.assign(places);
            reader.seekToBeginning(places);
            until(() -> {
                for (ConsumerRecord<String, Long> record : reader.poll(Duration.ofMillis(200))) {
                    last.put(record.key(), record.value());
                    topics.add(record.topic());
                }
                return last.values().stream().mapToLong(Long::longValue).sum() >= sum;
            }, "not all was counted: " + last);
        }
        List<String> values = new ArrayList<>();
        last.forEach((word, count) -> values.add(word + "=" + count));
        return Map.of("topics", topics, "values", values);
    }

    static Map<String, Object> share(Admin admin) throws Exception {
        second = new Instance("second");
        until(() -> first.works() && second.works(), "the instances do not share");
        int before = first.lines.get();
        produce("w");
        until(() -> first.lines.get() - before + second.lines.get() >= COUNT, "not all was read");
        List<Integer> shares = List.of(first.lines.get() - before, second.lines.get());
        counts(4 * COUNT, "read_committed");
        second.streams.close(new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(30)));
        produce("x");
        Map<String, Object> line = new HashMap<>(counts(6 * COUNT, "read_committed"));
        line.put("shares", shares);
        line.put("committed", committed(admin));
        return line;
    }

    /** The sum of the application's offsets for TOPIC, which count the markers of transactions in no partition of it. */
    static long committed(Admin admin) throws Exception {
        long[] sum = new long[1];
        until(() -> {
            sum[0] = get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).entrySet().stream()
                .filter(entry -> entry.getKey().topic().equals(topic)).mapToLong(entry -> entry.getValue().offset()).sum();
            return sum[0] >= 3 * COUNT;
        }, "offsets were not committed");
        return sum[0];
    }

    static Map<String, Object> administration(Admin admin) throws Exception {
        Map<String, Object> line = new HashMap<>();
        TreeSet<String> listed = new TreeSet<>(get(admin.listTopics().names()));
        line.put("listed", listed);
        line.put("partitions", get(admin.describeTopics(List.of(made)).allTopicNames()).get(made).partitions().size());
        TreeSet<String> groups = new TreeSet<>();
        get(admin.listGroups().all()).forEach(one -> groups.add(one.groupId()));
        line.put("groups", groups);
        until(() -> about(admin).members().isEmpty(), "members are left");
        line.put("described", about(admin).groupId());
        line.put("members", about(admin).members().size());
        Collection<String> own = new TreeSet<>(listed);
        own.removeIf(name -> !name.startsWith(group + "-"));
        if (own.size() != 2) {
            throw new IllegalStateException("expected a repartition and a changelog topic, found " + own);
        }
        own.add(made);
        get(admin.deleteTopics(own).all());
        until(() -> get(admin.listTopics().names()).stream().noneMatch(own::contains), "topics are still there");
        return line;
    }

    static ConsumerGroupDescription about(Admin admin) throws Exception {
        return get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }
}
