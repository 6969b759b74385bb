package kproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class RetriesTest {
    @RegisterExtension
    static final KproxyExtension KPROXY = new KproxyExtension(new KproxyProcess().withTopic("orders", 1));

    /** Fails unless each of these is acknowledged, one after the other. */
    private static void write(Kproxy kproxy, String... values) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", kproxy.bootstrapServers(), "linger.ms", 0,
                "request.timeout.ms", 10_000, "delivery.timeout.ms", 20_000);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String value : values) {
                producer.send(new ProducerRecord<>("orders", value)).get();
            }
        }
    }

    // snippet: retries
    @Test
    void theThirdWriteIsTriedAgain(Kproxy kproxy) throws Exception {
        var rule = kproxy.inject("""
                {kind: error, match: {api: Produce, topic: orders}, when: {nth: 3}, error: NOT_LEADER_OR_FOLLOWER}""");
        write(kproxy, "one", "two", "three", "four");
        kproxy.assertApplied();
        assertEquals(5, rule.counters().matched()); // the fourth request was the third record's second attempt
    }
    // end

    @Test
    void theExchangesTellWhatHappened(Kproxy kproxy) throws Exception {
        kproxy.inject("{kind: error, match: {api: Produce}, when: {nth: 3}, error: NOT_LEADER_OR_FOLLOWER}");
        write(kproxy, "one", "two", "three", "four");

        var writes = kproxy.awaitExchanges("~k produce ~t orders", 5);
        assertEquals(List.of(List.of(), List.of(), List.of("NOT_LEADER_OR_FOLLOWER"), List.of(), List.of()),
                writes.stream().map(Kproxy.Exchange::errors).toList());
        assertTrue(writes.stream().allMatch(one -> one.values().get("topic").equals("orders")));
        assertEquals(1, kproxy.exchanges("error and ~k produce").size());
    }

    @Test
    void aSlowBrokerIsWaitedFor(Kproxy kproxy) throws Exception {
        try (var slow = kproxy.inject("{kind: delay, match: {api: Produce}, when: {once: true}, delay: 300ms, at: response}")) {
            long began = System.nanoTime();
            write(kproxy, "one");
            slow.await(1);
            assertTrue(System.nanoTime() - began >= 300_000_000);
        }
        Duration latency = kproxy.awaitExchanges("~k produce", 1).get(0).latency();
        assertTrue(latency.toMillis() >= 300, latency.toString());
    }

    @Test
    void aLostAnswerIsAskedForAgain(Kproxy kproxy) throws Exception {
        var lost = kproxy.inject("{kind: disconnect, match: {api: Produce}, when: {once: true}, at: response, close_with: rst}");
        write(kproxy, "one");
        kproxy.assertApplied(lost);
        assertEquals(2, lost.counters().matched());
    }
}
