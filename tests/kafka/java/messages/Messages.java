import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.common.message.ApiMessageType;

/**
 * Makes and reads messages with Kafka's own code. Requests and answers are JSON lines:
 *
 *   list                                       [[key, lowest version, highest version, name], ...]
 *   make    key version direction seed count   [[frame, header, body], ...]      random messages
 *   read    key version direction frames       [frame or "error: ...", ...]      read, and written again
 *
 * Frames are hex, headers and bodies what Kafka's JSON converters say.
 */
public final class Messages {
    static final ObjectMapper JSON = JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            answer.set("id", request.get("id"));
            try {
                answer.set("ok", answer(request));
            } catch (Throwable problem) {
                answer.put("error", trace(problem));
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    static JsonNode answer(JsonNode request) throws Exception {
        switch (request.get("do").asText()) {
            case "list": return list();
            case "make": return new Frames(request).make(new Random(request.get("seed").asLong()), request.get("count").asInt());
            case "read": return new Frames(request).read(request.get("frames"));
            default: throw new IllegalArgumentException("unknown request " + request);
        }
    }

    static ArrayNode list() {
        ArrayNode found = JSON.createArrayNode();
        for (ApiMessageType type : ApiMessageType.values()) {
            found.addArray().add(type.apiKey()).add(type.lowestSupportedVersion())
                .add(type.highestSupportedVersion(true)).add(type.name);
        }
        return found;
    }

    static String trace(Throwable problem) {
        StringWriter text = new StringWriter();
        problem.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }
}
