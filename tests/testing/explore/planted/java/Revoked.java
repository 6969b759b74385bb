import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads all records of "in", and prints each when it is done with it. What it has read and not done waits in a queue,
 * which is emptied when its partition is taken away. Argument "planted": what it commits then is where it has read to,
 * so what was in the queue is lost; else it is what it is done with.
 */
public class Revoked {
    static final int COUNT = 4;
    static final Queue<ConsumerRecord<String, String>> queue = new ArrayDeque<>();
    static final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        boolean planted = arguments[0].equals("planted");
        Map<String, Object> config = Map.of(
            "bootstrap.servers", System.getenv("KPROXY_BOOTSTRAP"), "client.id", "app-c", "group.id", "app",
            "enable.auto.commit", false, "auto.offset.reset", "earliest", "heartbeat.interval.ms", 100,
            "session.timeout.ms", 6000, "retry.backoff.ms", 20,
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class);
        java.util.Set<String> seen = new java.util.TreeSet<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of("in"), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    try {
                        if (planted) {
                            consumer.commitSync();
                        } else {
                            consumer.commitSync(done);
                        }
                    } catch (KafkaException error) {
                        // another member may have it: what was not committed is read again
                    }
                    queue.clear();
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    queue.clear();
                }
            });
            long until = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (seen.size() < COUNT && System.nanoTime() < until) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    queue.add(record);
                }
                ConsumerRecord<String, String> next = queue.poll();
                if (next != null) {
                    Thread.sleep(150); // its work
                    seen.add(next.value());
                    done.put(new TopicPartition(next.topic(), next.partition()),
                        new OffsetAndMetadata(next.offset() + 1));
                }
            }
        }
        if (seen.size() < COUNT) {
            System.err.println("lost " + (COUNT - seen.size()));
            System.exit(1);
        }
    }
}
