import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer and a consumer that go on in the background while a test does things to the cluster. */
final class Traffic {
    private static final Map<String, Traffic> RUNNING = new ConcurrentHashMap<>();
    private static final long PATIENCE_MS = 30_000;

    private final Set<String> acknowledged = ConcurrentHashMap.newKeySet();
    private final Set<String> received = ConcurrentHashMap.newKeySet();
    private final Set<String> errors = ConcurrentHashMap.newKeySet();
    private final Thread producing;
    private final Thread consuming;
    private volatile boolean stopping;

    private Traffic(JsonNode request) {
        producing = new Thread(() -> produce(request));
        consuming = new Thread(() -> consume(request));
        producing.start();
        consuming.start();
    }

    /** {name, producer, consumer, topic}: begin, and return once a record went all the way. */
    static Object start(JsonNode request) throws Exception {
        RUNNING.put(request.get("name").asText(), new Traffic(request));
        return await(request);
    }

    /** {name}: return once a hundred more records went all the way; the counts. */
    static Object await(JsonNode request) throws Exception {
        Traffic traffic = RUNNING.get(request.get("name").asText());
        int enough = traffic.received.size() + 100;
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (traffic.received.size() < enough && System.currentTimeMillis() < end) {
            Thread.sleep(5);
        }
        return traffic.report();
    }

    /** {name}: stop producing, read to the end; counts, errors, and what was acknowledged but never received. */
    static Object stop(JsonNode request) throws Exception {
        Traffic traffic = RUNNING.remove(request.get("name").asText());
        traffic.stopping = true;
        traffic.producing.join();
        traffic.consuming.join();
        return traffic.report();
    }

    private Object report() {
        Set<String> missing = new TreeSet<>(acknowledged);
        missing.removeAll(received);
        return Map.of(
                "acknowledged", acknowledged.size(),
                "received", received.size(),
                "missing", stopping ? missing : Set.of(),
                "errors", errors);
    }

    private void produce(JsonNode request) {
        String topic = request.get("topic").asText();
        try (KafkaProducer<String, String> producer = Data.producer(request.get("producer"))) {
            for (int i = 0; !stopping; i++) {
                String value = "traffic-" + i;
                producer.send(new ProducerRecord<>(topic, value), (metadata, problem) -> {
                    if (problem == null) {
                        acknowledged.add(value);
                    } else {
                        errors.add("producer: " + problem);
                    }
                });
                Thread.sleep(1);
            }
        } catch (Exception problem) {
            errors.add("producer: " + problem);
        }
    }

    private void consume(JsonNode request) {
        try (KafkaConsumer<String, String> consumer = Data.consumer(request.get("consumer"))) {
            consumer.subscribe(Set.of(request.get("topic").asText()));
            long end = Long.MAX_VALUE;
            while (producing.isAlive() || (!received.containsAll(acknowledged) && System.currentTimeMillis() < end)) {
                consumer.poll(Duration.ofMillis(50)).forEach(record -> received.add(record.value()));
                if (!producing.isAlive() && end == Long.MAX_VALUE) {
                    end = System.currentTimeMillis() + PATIENCE_MS;
                }
            }
        } catch (Exception problem) {
            errors.add("consumer: " + problem);
        }
    }
}
