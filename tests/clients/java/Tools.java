import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.internals.Exit;

/** Kafka's own command line tools, run by their main method in this JVM. */
final class Tools {
    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1;

        final int code;

        Exited(int code) {
            super("exit code " + code);
            this.code = code;
        }
    }

    /** {class, arguments, stdin}: {code, out}. One at a time, since a tool owns standard input and output. */
    static synchronized Object run(JsonNode request) throws Exception {
        InputStream input = System.in;
        PrintStream output = System.out;
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(written, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        int code = 0;
        try {
            String[] arguments = Data.strings(request.get("arguments")).toArray(new String[0]);
            Class.forName(request.get("class").asText())
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException problem) {
            if (!(problem.getCause() instanceof Exited)) {
                throw problem;
            }
            code = ((Exited) problem.getCause()).code;
        } finally {
            Exit.resetExitProcedure();
            System.out.flush();
            System.setOut(output);
            System.setIn(input);
        }
        return Map.of("code", code, "out", written.toString(StandardCharsets.UTF_8));
    }
}
