import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.config.Configuration;
import io.kroxylicious.proxy.internal.config.Features;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Kroxylicious by its published runtime, whose main class is not published: RunKroxylicious CONFIG */
class RunKroxylicious {
    public static void main(String[] words) throws Exception {
        try (KafkaProxy running = started(Path.of(words[0]))) {
            running.block();
        }
    }

    private static KafkaProxy started(Path file) throws IOException, InterruptedException {
        ConfigParser reader = new ConfigParser();
        Configuration configuration = reader.parseConfiguration(Files.readString(file));
        KafkaProxy proxy = new KafkaProxy(reader, configuration, Features.defaultFeatures());
        proxy.startup();
        return proxy;
    }
}
