package kproxy.testcontainers;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import kproxy.KproxyServer;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * A container with kproxy in front of the brokers of {@link #withUpstream}.
 *
 * <p>kproxy listens on the ports that it advertises. So the container binds free ports of the host to the same ports
 * inside: one for {@link #getBootstrapServers}, followed by one for each broker.
 */
public class KproxyContainer extends GenericContainer<KproxyContainer> implements KproxyServer {
    static final String FOLDER = "/etc/kproxy/";
    static final int ADMIN_PORT = 9190;
    private static final int ATTEMPTS = 100; // to find consecutive free ports
    private static final int FIRST_PORT = 20_000;
    private static final int LAST_PORT = 32_767; // outgoing connections use higher ports and could take a released one

    private final String token = UUID.randomUUID().toString();
    private final List<String> rules = new ArrayList<>();
    private final List<ServerSocket> reserved = new ArrayList<>();
    private String upstream;
    private int brokers = 3;
    private int port; // 0 until the first start

    /** Takes an image of kproxy, such as one that its Dockerfile builds. */
    public KproxyContainer(DockerImageName image) {
        super(image);
        withCommand("run", "--config", FOLDER + "kproxy.yaml");
        withEnv("KPROXY_TOKEN", token);
        withExposedPorts(ADMIN_PORT);
        waitingFor(Wait.forHttp("/readyz").forPort(ADMIN_PORT));
    }

    /** Sets the brokers, host:port,…, as kproxy reaches them from its container. */
    public KproxyContainer withUpstream(String bootstrapServers) {
        upstream = bootstrapServers;
        return this;
    }

    /** Sets the number of brokers that clients can reach (default: 3). */
    public KproxyContainer withBrokers(int number) {
        brokers = number;
        return this;
    }

    /** Adds a rule file that applies from the start. */
    public KproxyContainer withRules(Path file) {
        String name = "rules-" + (rules.size() + 1) + ".yaml";
        try {
            withCopyToContainer(Transferable.of(Files.readString(file)), FOLDER + name);
        } catch (IOException error) {
            throw new UncheckedIOException("expected a rule file, got none (at " + file + ")", error);
        }
        rules.add(name);
        return this;
    }

    @Override
    protected void configure() {
        if (upstream == null) {
            throw new IllegalStateException("expected brokers, got none (at withUpstream)");
        }
        if (port == 0) { // a container that starts again keeps its address
            port = reservePorts(brokers + 1);
            for (int one = port; one <= port + brokers; one++) {
                addFixedExposedPort(one, one);
            }
            withCopyToContainer(Transferable.of(config()), FOLDER + "kproxy.yaml");
        }
    }

    /** Returns the config document of kproxy. */
    String config() {
        return """
                clusters:
                  main: {bootstrap: [%s]}
                listeners:
                  - {name: host, bind: "0.0.0.0:%d", cluster: main, advertise: {host: "%s", ports: %d-%d}}
                admin: {bind: "0.0.0.0:%d", token: "${KPROXY_TOKEN}"}
                view: {record_from_start: true}
                rules: [%s]
                """.formatted(quoted(List.of(upstream.split(","))), port, getHost(), port + 1, port + brokers, ADMIN_PORT,
                quoted(rules));
    }

    private static String quoted(List<String> texts) {
        return texts.stream().map(text -> "\"" + text.trim() + "\"").collect(Collectors.joining(", "));
    }

    /** Opens this number of consecutive free ports, and returns the first one. */
    private int reservePorts(int count) {
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            int first = ThreadLocalRandom.current().nextInt(FIRST_PORT, LAST_PORT - count);
            try {
                for (int one = first; one < first + count; one++) {
                    reserved.add(new ServerSocket(one));
                }
                return first;
            } catch (IOException taken) {
                releasePorts();
            }
        }
        throw new IllegalStateException("expected " + count + " consecutive free ports, got none");
    }

    private void releasePorts() {
        for (ServerSocket socket : reserved) {
            try {
                socket.close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        reserved.clear();
    }

    @Override
    protected void containerIsCreated(String containerId) {
        releasePorts(); // Docker binds them when it starts the container
    }

    @Override
    public String getBootstrapServers() {
        return getHost() + ":" + port;
    }

    @Override
    public String getAdminUrl() {
        return "http://" + getHost() + ":" + getMappedPort(ADMIN_PORT);
    }

    @Override
    public String getAdminToken() {
        return token;
    }

    @Override
    public void stop() {
        releasePorts(); // of a start that failed before the container existed
        super.stop();
    }

    @Override
    public void close() {
        stop();
    }
}
