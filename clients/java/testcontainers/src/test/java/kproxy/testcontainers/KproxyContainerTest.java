package kproxy.testcontainers;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.net.BindException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.testcontainers.containers.wait.strategy.HttpWaitStrategy;
import org.testcontainers.utility.DockerImageName;

/** Tests of the container's configuration, which need no container engine. */
class KproxyContainerTest {
    @TempDir
    Path folder;

    private static KproxyContainer container() {
        return new KproxyContainer(DockerImageName.parse("example/kproxy:1.2.3")) {
            @Override
            public String getHost() {
                return "engine.example";
            }
        };
    }

    private static Object field(Object object, Class<?> owner, String name) throws Exception {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    @Test
    void imageCommandEnvironmentAndWaitStrategyAreThoseOfKproxy() throws Exception {
        try (var container = container()) {
            assertTrue(container.getImage().toString().contains("example/kproxy:1.2.3"), container.getImage().toString());
            assertArrayEquals(new String[] {"run", "--config", "/etc/kproxy/kproxy.yaml"}, container.getCommandParts());
            assertEquals(container.getAdminToken(), container.getEnvMap().get("KPROXY_TOKEN"));
            assertEquals(List.of(9190), container.getExposedPorts());
            Object wait = field(container, org.testcontainers.containers.GenericContainer.class, "waitStrategy");
            assertEquals("/readyz", field(wait, HttpWaitStrategy.class, "path"));
            assertEquals(9190, ((java.util.Optional<?>) field(wait, HttpWaitStrategy.class, "livenessPort")).get());
            assertEquals(Set.of(), field(wait, HttpWaitStrategy.class, "statusCodes"));
        }
    }

    @Test
    void portsAreReservedUntilTheContainerIsCreated() throws Exception {
        try (var container = container().withUpstream("kafka:19092").withBrokers(2)) {
            container.configure();
            int first = Integer.parseInt(container.getBootstrapServers().replace("engine.example:", ""));
            for (int port = first; port <= first + 2; port++) {
                int taken = port;
                assertTrue(container.getPortBindings().contains(port + ":" + port + "/tcp"), container.getPortBindings().toString());
                assertThrows(BindException.class, () -> new ServerSocket(taken));
            }
            assertEquals(3, container.getPortBindings().size());
            container.containerIsCreated("id");
            new ServerSocket(first).close();
            container.configure();
            assertEquals("engine.example:" + first, container.getBootstrapServers());
            assertEquals(3, container.getPortBindings().size());
        }
    }

    @Test
    void theConfigNamesBrokersPortsAndRules() throws Exception {
        Path rules = Files.writeString(folder.resolve("faults.yaml"), "rules: []\n");
        try (var container = container().withUpstream("kafka:19092, other:9092").withRules(rules)) {
            container.configure();
            int first = Integer.parseInt(container.getBootstrapServers().replace("engine.example:", ""));
            String expected = Files.readString(Path.of("src/test/resources/kproxy.yaml"));
            assertEquals(expected.replace("40000", "" + first).replace("40001-40003", first + 1 + "-" + (first + 3)),
                    container.config());
        }
    }

    @Test
    void missingBrokersAndRulesAreErrors() {
        try (var container = container()) {
            assertEquals("expected brokers, got none (at withUpstream)",
                    assertThrows(IllegalStateException.class, container::configure).getMessage());
            assertEquals("expected a rule file, got none (at /no/such/file.yaml)",
                    assertThrows(UncheckedIOException.class, () -> container.withRules(Path.of("/no/such/file.yaml"))).getMessage());
        }
    }
}
