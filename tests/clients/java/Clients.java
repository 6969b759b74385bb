import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Kafka's Java clients at the command of a test: a JSON object per line in, one per line out, so that many tests share
 * one JVM. {"id": 1, "do": "produce", ...} is answered by {"id": 1, "ok": ...} or {"id": 1, "error": "..."}.
 */
public final class Clients {
    interface Operation {
        Object run(JsonNode request) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    static final Map<String, Operation> OPERATIONS = new HashMap<>();

    static {
        OPERATIONS.put("produce", Data::produce);
        OPERATIONS.put("consume", Data::consume);
        OPERATIONS.put("copy", Data::copy);
        OPERATIONS.put("share", Data::share);
        OPERATIONS.put("admin", Admins::run);
        OPERATIONS.put("traffic_start", Traffic::start);
        OPERATIONS.put("traffic_wait", Traffic::await);
        OPERATIONS.put("traffic_stop", Traffic::stop);
        OPERATIONS.put("tool", Tools::run);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = System.out;
        System.setOut(System.err);  // what a client or a tool prints is not an answer
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            Thread worker = new Thread(() -> answer(request, replies));
            worker.setDaemon(true);
            worker.start();
        }
        System.exit(0);
    }

    static void answer(JsonNode request, PrintStream replies) {
        Map<String, Object> reply = new HashMap<>();
        reply.put("id", request.get("id").asInt());
        try {
            reply.put("ok", OPERATIONS.get(request.get("do").asText()).run(request));
        } catch (Throwable problem) {
            StringWriter text = new StringWriter();
            problem.printStackTrace(new PrintWriter(text));
            reply.put("error", text.toString());
        }
        synchronized (replies) {
            try {
                replies.println(JSON.writeValueAsString(reply));
            } catch (Exception impossible) {
                throw new IllegalStateException(impossible);
            }
            replies.flush();
        }
    }

    static Properties properties(JsonNode settings) {
        Properties found = new Properties();
        settings.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        return found;
    }
}
