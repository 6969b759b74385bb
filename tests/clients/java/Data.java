import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Records in and out. Values are "tag-0", "tag-1", ... and padding; a consumed record is [topic, partition, value]. */
final class Data {
    private static final Map<String, AtomicInteger> TOTALS = new ConcurrentHashMap<>();

    static KafkaProducer<String, String> producer(JsonNode settings) {
        return new KafkaProducer<>(Clients.properties(settings), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(JsonNode settings) {
        return new KafkaConsumer<>(Clients.properties(settings), new StringDeserializer(), new StringDeserializer());
    }

    static String value(JsonNode request, int number) {
        return request.get("tag").asText() + "-" + number + " " + "x".repeat(request.path("padding").asInt(0));
    }

    /** {config, topic, tag, count, padding}: the topics that the broker's answers named, with the number of each. */
    static Object produce(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        Map<String, Integer> topics = new HashMap<>();
        try (KafkaProducer<String, String> producer = producer(request.get("config"))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < request.get("count").asInt(); i++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, "key-" + i, value(request, i));
                record.headers().add("number", Integer.toString(i).getBytes());
                sent.add(producer.send(record));
            }
            producer.flush();
            for (Future<RecordMetadata> answer : sent) {
                topics.merge(answer.get().topic(), 1, Integer::sum);
            }
        }
        return topics;
    }

    /**
     * {config, topics | pattern | broker_pattern, count, seconds}: records, until there are count of them, or, with
     * {together: name}, until all that consume under that name have so many.
     */
    static Object consume(JsonNode request) {
        List<Object> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(request.get("config"))) {
            if (request.has("pattern")) {
                consumer.subscribe(Pattern.compile(request.get("pattern").asText()));
            } else if (request.has("broker_pattern")) {
                consumer.subscribe(new SubscriptionPattern(request.get("broker_pattern").asText()));
            } else {
                consumer.subscribe(strings(request.get("topics")));
            }
            long end = System.nanoTime() + request.get("seconds").asLong() * 1_000_000_000L;
            String group = request.path("together").asText(Thread.currentThread().getName());
            AtomicInteger total = TOTALS.computeIfAbsent(group, name -> new AtomicInteger());
            while (total.get() < request.get("count").asInt() && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> {
                    records.add(request.has("offsets") ? List.of(record.offset(), record.value()) : row(record));
                    total.incrementAndGet();
                });
            }
        }
        return records;
    }

    /** {consumer, producer, from, to, count}: copy exactly once; the first transaction is aborted and done again. */
    static Object copy(JsonNode request) {
        int copied = 0;
        int aborted = 0;
        try (KafkaConsumer<String, String> consumer = consumer(request.get("consumer"));
                KafkaProducer<String, String> producer = producer(request.get("producer"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(request.get("from").asText()));
            while (copied < request.get("count").asInt()) {
                ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(100));
                if (batch.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : batch) {
                    producer.send(new ProducerRecord<>(request.get("to").asText(), record.key(), record.value()));
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (aborted == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    aborted = batch.count();
                    rewind(consumer, batch);
                } else {
                    producer.commitTransaction();
                    copied += batch.count();
                }
            }
        }
        return Map.of("copied", copied, "aborted", aborted);
    }

    private static void rewind(KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> batch) {
        for (TopicPartition partition : batch.partitions()) {
            consumer.seek(partition, batch.records(partition).get(0).offset());
        }
    }

    /** {config, topics, count, seconds}: records taken by a share group (KIP-932), each acknowledged. */
    static Object share(JsonNode request) {
        List<Object> records = new ArrayList<>();
        Properties settings = Clients.properties(request.get("config"));
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(strings(request.get("topics")));
            long end = System.nanoTime() + request.get("seconds").asLong() * 1_000_000_000L;
            while (records.size() < request.get("count").asInt() && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(row(record)));
                consumer.commitSync(Duration.ofSeconds(10));
            }
        }
        return records;
    }

    static Collection<String> strings(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(element -> found.add(element.asText()));
        return found;
    }

    static List<Object> row(ConsumerRecord<String, String> record) {
        return List.of(record.topic(), record.partition(), record.value());
    }
}
