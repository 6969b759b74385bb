package kproxy.testcontainers;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import kproxy.Kproxy;
import kproxy.KproxyExtension;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** A test of Kafka's client with containers of Kafka and kproxy. It needs a container engine. */
@EnabledIfEnvironmentVariable(named = "KPROXY_IMAGE", matches = ".+")
class RetriesTest {
    // snippet: container
    static final Network NETWORK = Network.newNetwork();
    static final KafkaContainer KAFKA =
            new KafkaContainer("apache/kafka:4.1.0").withNetwork(NETWORK).withListener("kafka:19092");

    @RegisterExtension
    static final KproxyExtension KPROXY = new KproxyExtension(
            new KproxyContainer(DockerImageName.parse(System.getenv().getOrDefault("KPROXY_IMAGE", "kproxy")))
                    .withNetwork(NETWORK).dependsOn(KAFKA).withUpstream("kafka:19092"));

    @Test
    void theSecondWriteIsSentAgain(Kproxy kproxy) throws Exception {
        var rule = kproxy.inject("{kind: error, match: {api: Produce}, when: {nth: 2}, error: NOT_LEADER_OR_FOLLOWER}");
        Map<String, Object> config = Map.of("bootstrap.servers", kproxy.bootstrapServers(), "linger.ms", 0);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "one")).get();
            producer.send(new ProducerRecord<>("orders", "two")).get();
        }
        kproxy.assertApplied();
        assertEquals(3, rule.counters().matched()); // the third request is the second attempt of "two"
    }
    // end
}
