import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * What Kafka's own request classes answer when a whole request fails. Requests and answers are JSON lines:
 *
 *   answer  key version code message frames    [body, "error: ..." or null (no answer at all), ...]
 *
 * Frames are whole requests and bodies those of responses, in hex.
 */
public final class ErrorAnswers {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            answer.set("id", request.get("id"));
            try {
                answer.set("ok", answers(request));
            } catch (Throwable problem) {
                answer.put("error", trace(problem));
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static ArrayNode answers(JsonNode request) {
        ApiKeys api = ApiKeys.forId(request.get("key").asInt());
        short version = (short) request.get("version").asInt();
        Errors error = Errors.forCode((short) request.get("code").asInt());
        Throwable failure = error.exception(request.get("message").asText());
        ArrayNode found = JSON.createArrayNode();
        for (JsonNode frame : request.get("frames")) {
            try {
                byte[] body = answer(api, version, HexFormat.of().parseHex(frame.asText()), failure);
                found.add(body == null ? null : HexFormat.of().formatHex(body));
            } catch (Throwable problem) {
                found.add("error: " + trace(problem));
            }
        }
        return found;
    }

    private static byte[] answer(ApiKeys api, short version, byte[] frame, Throwable failure) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(frame);
        ApiMessageType type = ApiMessageType.fromApiKey(api.id);
        new RequestHeaderData().read(new ByteBufferAccessor(bytes), type.requestHeaderVersion(version));
        AbstractResponse response = parse(api, version, bytes).getErrorResponse(0, failure);
        return response == null ? null : write(response.data(), version);
    }

    /** Its second argument was a ByteBuffer up to Kafka 4.0, and is a Readable since. */
    private static AbstractRequest parse(ApiKeys api, short version, ByteBuffer body) throws Exception {
        for (Method method : AbstractRequest.class.getMethods()) {
            if (method.getName().equals("parseRequest")) {
                boolean old = method.getParameterTypes()[2] == ByteBuffer.class;
                Object made = method.invoke(null, api, version, old ? body : new ByteBufferAccessor(body));
                return (AbstractRequest) made.getClass().getField("request").get(made);
            }
        }
        throw new IllegalStateException("no parseRequest in " + AbstractRequest.class);
    }

    private static byte[] write(ApiMessage body, short version) {
        ObjectSerializationCache sizes = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(body.size(sizes, version));
        body.write(new ByteBufferAccessor(out), sizes, version);
        return out.array();
    }

    private static String trace(Throwable problem) {
        StringWriter text = new StringWriter();
        problem.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
