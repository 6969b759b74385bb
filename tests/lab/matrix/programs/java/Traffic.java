import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** The step traffic of tests/lab/matrix/scenario.py: writes and reads by turns, and notes what fails. */
final class Traffic {
    static final int ROUNDS = 6, EACH = 5, MOST_ERRORS = 100;
    static final long ROUND = 10_000, WHOLE = 45_000;

    final long began = System.currentTimeMillis(), limit = began + WHOLE;
    final List<String> sent = new ArrayList<>(), errors = new ArrayList<>();
    final List<List<Object>> acknowledged = new ArrayList<>(), failed = new ArrayList<>(), read = new ArrayList<>();

    static Map<String, Object> run() {
        return new Traffic().rounds();
    }

    Map<String, Object> rounds() {
        KafkaProducer<String, String> producer = Client.producer(Map.of(
            "request.timeout.ms", "5000", "delivery.timeout.ms", "20000", "max.block.ms", "20000"));
        Client.Member member = null;
        for (int number = 0; number < ROUNDS && System.currentTimeMillis() < limit; number++) {
            write(producer);
            if (number == 0 || number == ROUNDS / 2) {
                if (member != null) {
                    member.close();
                }
                member = new Client.Member(Client.group, Map.of("request.timeout.ms", "5000"), "6000");
                member.consumer.subscribe(List.of(Client.topic));
            }
            readUntil(member, this::allRead, Math.min(limit, System.currentTimeMillis() + ROUND));
            try {
                member.consumer.commitSync();
            } catch (RuntimeException problem) {
                note(problem);
            }
        }
        readUntil(member, this::allRead, limit);
        readUntil(member, () -> false, System.currentTimeMillis() + 1000);
        member.close();
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("sent", sent);
        told.put("acknowledged", acknowledged);
        told.put("failed", failed);
        told.put("read", read);
        told.put("errors", errors);
        told.put("seconds", (System.currentTimeMillis() - began) / 1000.0);
        return told;
    }

    void write(KafkaProducer<String, String> producer) {
        Map<String, Future<RecordMetadata>> answers = new LinkedHashMap<>();
        for (int each = 0; each < EACH; each++) {
            String value = "t-" + sent.size();
            ProducerRecord<String, String> record =
                new ProducerRecord<>(Client.topic, sent.size() % Client.PARTITIONS, null, value);
            sent.add(value);
            try {
                answers.put(value, producer.send(record));
            } catch (RuntimeException problem) {
                failed.add(List.of(value, problem.toString()));
            }
        }
        answers.forEach((value, answer) -> {
            try {
                long left = Math.max(100, limit - System.currentTimeMillis());
                RecordMetadata place = answer.get(left, TimeUnit.MILLISECONDS);
                acknowledged.add(List.of(value, place.partition(), place.offset()));
            } catch (ExecutionException problem) {
                failed.add(List.of(value, String.valueOf(problem.getCause())));
            } catch (InterruptedException | TimeoutException problem) {
                note(problem);
            }
        });
    }

    void readUntil(Client.Member member, BooleanSupplier enough, long until) {
        while (!enough.getAsBoolean() && System.currentTimeMillis() < until) {
            try {
                for (ConsumerRecord<String, String> record : member.consumer.poll(Duration.ofMillis(200))) {
                    read.add(Arrays.asList(record.value(), record.partition(), record.offset()));
                }
            } catch (RuntimeException problem) {
                note(problem);
                pause();
            }
        }
    }

    boolean allRead() {
        Set<Object> found = new HashSet<>();
        read.forEach(one -> found.add(one.get(0)));
        return acknowledged.stream().allMatch(one -> found.contains(one.get(0)));
    }

    void note(Throwable problem) {
        if (errors.size() < MOST_ERRORS) {
            errors.add(problem.toString());
        }
    }

    static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException problem) {
            Thread.currentThread().interrupt();
        }
    }
}
