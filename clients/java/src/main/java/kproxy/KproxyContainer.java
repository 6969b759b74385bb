package kproxy;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * kproxy in front of a mock cluster, as a process that is used as a container is: made, started, asked for its address,
 * closed. It ends with this JVM, however that ends, since its standard input does.
 */
public class KproxyContainer implements AutoCloseable {
    private static final long START_PATIENCE = 180; // seconds; a second is usual

    private final List<String> options = new ArrayList<>(List.of("mock", "--until-eof", "--admin", "127.0.0.1:0"));
    private String command = System.getenv().getOrDefault("KPROXY", "kproxy");
    private Process process;
    private Path said;
    private String bootstrapServers;
    private String adminUrl;

    /** Has a topic be there from the start; others are made when a client asks for them. */
    public KproxyContainer withTopic(String name, int partitions) {
        return with("--topic", name + ":" + partitions);
    }

    /** Stands in front of these brokers, host:port,…, in place of a mock cluster. */
    public KproxyContainer withUpstream(String bootstrapServers) {
        return with("--upstream", bootstrapServers);
    }

    /** Has the rules of a file, or of a folder of them, in force from the start. */
    public KproxyContainer withRules(Path path) {
        return with("--rules", path.toString());
    }

    /** Names the program to run, in place of that of the environment's KPROXY, or of kproxy on the PATH. */
    public KproxyContainer withCommand(String program) {
        command = program;
        return this;
    }

    /** Adds an option of {@code kproxy mock}, such as {@code --brokers} or {@code --seed}. */
    public KproxyContainer with(String option, String value) {
        options.addAll(List.of(option, value));
        return this;
    }

    /** Starts it, unless it runs, and returns when clients can connect. */
    public synchronized KproxyContainer start() {
        if (isRunning()) {
            return this;
        }
        List<String> words = new ArrayList<>(List.of(command.trim().split("\\s+")));
        words.addAll(options);
        try {
            said = File.createTempFile("kproxy-", ".log").toPath();
            process = new ProcessBuilder(words).redirectError(said.toFile()).start();
            readAddresses();
        } catch (IOException error) {
            throw new UncheckedIOException("kproxy cannot be started (set KPROXY, or have it on the PATH)", error);
        }
        return this;
    }

    private void readAddresses() throws IOException {
        BufferedReader lines = process.inputReader();
        var told = CompletableFuture.supplyAsync(() -> lines.lines().limit(2).toList());
        List<String> addresses = told.completeOnTimeout(List.of(), START_PATIENCE, TimeUnit.SECONDS).join();
        if (addresses.size() < 2) {
            process.destroyForcibly().onExit().join();
            throw new IllegalStateException("kproxy did not start: " + Files.readString(said).trim());
        }
        bootstrapServers = addresses.get(0);
        adminUrl = addresses.get(1);
    }

    public synchronized boolean isRunning() {
        return process != null && process.isAlive();
    }

    /** Returns host:port for clients. */
    public String getBootstrapServers() {
        return bootstrapServers;
    }

    /** Returns the URL of the admin API. */
    public String getAdminUrl() {
        return adminUrl;
    }

    /** Ends the process, and returns when it has ended. */
    @Override
    public synchronized void close() {
        if (process == null) {
            return;
        }
        try {
            process.getOutputStream().close();
            process.onExit().completeOnTimeout(process, START_PATIENCE, TimeUnit.SECONDS).join();
            Files.deleteIfExists(said);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } finally {
            process.destroyForcibly();
        }
    }
}
