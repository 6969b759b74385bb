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

/** A process of kproxy in front of a mock cluster. It stops with this JVM, because its standard input then ends. */
public class KproxyProcess implements KproxyServer {
    private static final long START_PATIENCE = 180; // seconds

    private final List<String> options = new ArrayList<>(List.of("mock", "--until-eof", "--admin", "127.0.0.1:0"));
    private String command = System.getenv().getOrDefault("KPROXY", "kproxy");
    private Process process;
    private Path said;
    private String bootstrapServers;
    private String adminUrl;

    /** Adds a topic that exists from the start. The mock cluster creates other topics at first use. */
    public KproxyProcess withTopic(String name, int partitions) {
        return with("--topic", name + ":" + partitions);
    }

    /** Sets the brokers, host:port,…, instead of a mock cluster. */
    public KproxyProcess withUpstream(String bootstrapServers) {
        return with("--upstream", bootstrapServers);
    }

    /** Adds a rule file, or a folder of rule files, that applies from the start. */
    public KproxyProcess withRules(Path path) {
        return with("--rules", path.toString());
    }

    /** Sets the command (default: the environment variable KPROXY, or kproxy on the PATH). */
    public KproxyProcess withCommand(String program) {
        command = program;
        return this;
    }

    /** Adds an option of {@code kproxy mock}, such as {@code --brokers} or {@code --seed}. */
    public KproxyProcess with(String option, String value) {
        options.addAll(List.of(option, value));
        return this;
    }

    @Override
    public synchronized void start() {
        if (isRunning()) {
            return;
        }
        List<String> words = new ArrayList<>(List.of(command.trim().split("\\s+")));
        words.addAll(options);
        try {
            said = File.createTempFile("kproxy-", ".log").toPath();
            process = new ProcessBuilder(words).redirectError(said.toFile()).start();
            BufferedReader lines = process.inputReader();
            var read = CompletableFuture.supplyAsync(() -> lines.lines().limit(2).toList());
            List<String> addresses = read.completeOnTimeout(List.of(), START_PATIENCE, TimeUnit.SECONDS).join();
            if (addresses.size() < 2) {
                process.destroyForcibly().onExit().join();
                throw new IllegalStateException("kproxy did not start: " + Files.readString(said).trim());
            }
            bootstrapServers = addresses.get(0);
            adminUrl = addresses.get(1);
        } catch (IOException error) {
            throw new UncheckedIOException("cannot start kproxy, set KPROXY or add kproxy to the PATH", error);
        }
    }

    public synchronized boolean isRunning() {
        return process != null && process.isAlive();
    }

    @Override
    public String getBootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public String getAdminUrl() {
        return adminUrl;
    }

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
