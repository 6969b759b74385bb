import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Whole frames, header and body, without the length in front. */
final class Frames {
    private final ApiMessageType type;
    private final short version;
    private final boolean isRequest;
    private final short headerVersion;

    Frames(JsonNode request) {
        type = ApiMessageType.fromApiKey((short) request.get("key").asInt());
        version = (short) request.get("version").asInt();
        isRequest = request.get("direction").asText().equals("request");
        headerVersion = isRequest ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
    }

    /** Random messages: frame, header and body of each. */
    ArrayNode make(Random chance, int count) throws Exception {
        ArrayNode made = Messages.JSON.createArrayNode();
        for (int i = 0; i < count; i++) {
            makeOne(chance, made.addArray());
        }
        return made;
    }

    /** What Kafka writes after reading these frames. */
    ArrayNode read(JsonNode frames) {
        ArrayNode again = Messages.JSON.createArrayNode();
        for (JsonNode frame : frames) {
            try {
                again.add(readOne(Messages.bytes(frame.asText())));
            } catch (RuntimeException problem) {
                again.add("error: " + Messages.trace(problem));
            }
        }
        return again;
    }

    private void makeOne(Random chance, ArrayNode answer) throws Exception {
        RandomMessage random = new RandomMessage(chance);
        random.nullRecords = type != ApiMessageType.FETCH_SNAPSHOT;
        ApiMessage header = (ApiMessage) random.make(newHeader().getClass(), headerVersion);
        if (header instanceof RequestHeaderData) {
            ((RequestHeaderData) header).setRequestApiKey(type.apiKey()).setRequestApiVersion(version);
        }
        ApiMessage body = (ApiMessage) random.make(newBody().getClass(), version);
        answer.add(Messages.hex(write(header, body))).add(json(header, headerVersion)).add(json(body, version));
    }

    private String readOne(byte[] frame) {
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(frame));
        ApiMessage header = newHeader();
        header.read(in, headerVersion);
        ApiMessage body = newBody();
        body.read(in, version);
        String left = in.remaining() == 0 ? "" : " and " + in.remaining() + " bytes are left";
        return Messages.hex(write(header, body)) + left;
    }

    private ApiMessage newHeader() {
        return isRequest ? new RequestHeaderData() : new ResponseHeaderData();
    }

    private ApiMessage newBody() {
        return isRequest ? type.newRequest() : type.newResponse();
    }

    private byte[] write(ApiMessage header, ApiMessage body) {
        ObjectSerializationCache sizes = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(header.size(sizes, headerVersion) + body.size(sizes, version));
        header.write(new ByteBufferAccessor(out), sizes, headerVersion);
        body.write(new ByteBufferAccessor(out), sizes, version);
        if (out.hasRemaining()) {
            throw new IllegalStateException(out.remaining() + " bytes less than its size");
        }
        return out.array();
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        return (JsonNode) Class.forName(message.getClass().getName() + "JsonConverter")
            .getMethod("write", message.getClass(), short.class).invoke(null, message, version);
    }
}
