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
    private static final long START_PATIENCE = 180; // seconds; a second is usual

    private final List<String> options = new ArrayList<>(List.of("mock", "--until-eof", "--admin", "127.0.0.1:0"));
    private String command = System.getenv().getOrDefault("KPROXY", "kproxy");
    private Process process;
    private Path said;
    private String bootstrapServers;
    private String adminUrl;

    /** Has a topic be there from the start; others are made when a client asks for them. */
    public KproxyProcess withTopic(String name, int partitions) {
        return with("--topic", name + ":" + partitions);
    }

    /** Stands in front of these brokers, host:port,…, in place of a mock cluster. */
    public KproxyProcess withUpstream(String bootstrapServers) {
        return with("--upstream", bootstrapServers);
    }

    /** Has the rules of a file, or of a folder of them, in force from the start. */
    public KproxyProcess withRules(Path path) {
        return with("--rules", path.toString());
    }

    /** Names the program to run, in place of that of the environment's KPROXY, or of kproxy on the PATH. */
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
            throw new UncheckedIOException("kproxy cannot be started (set KPROXY, or have it on the PATH)", error);
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
