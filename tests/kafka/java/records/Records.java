import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.ControlRecordUtils;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Record batches and message sets of every magic and codec, written and read by Kafka's own code (of 3.9, the last that
 * writes all magics). Requests and answers are JSON lines, bytes are hex:
 *
 *   sets    seed     [[magic, codec, bytes, records], ...]
 *   records bytes    [[offset, timestamp, key, value, headers], ...], every crc checked
 *   control bytes    [[type, fields...], ...]
 */
final class Records {
    private static final long START = 1700000000000L;

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            answer.set("id", request.get("id"));
            try {
                answer.set("ok", answer(request));
            } catch (Throwable problem) {
                StringWriter text = new StringWriter();
                problem.printStackTrace(new PrintWriter(text));
                answer.put("error", text.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static JsonNode answer(JsonNode request) {
        switch (request.get("do").asText()) {
            case "sets": return make(request.get("seed").asLong());
            case "records": return read(request.get("bytes").asText());
            case "control": return control(request.get("bytes").asText());
            default: throw new IllegalArgumentException("unknown request " + request);
        }
    }

    static ArrayNode make(long seed) {
        Random chance = new Random(seed);
        ArrayNode made = JSON.createArrayNode();
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                if (codec == CompressionType.ZSTD && magic < 2) continue;
                for (TimestampType kind : new TimestampType[] {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME}) {
                    if (magic == 0 && kind == TimestampType.LOG_APPEND_TIME) continue;
                    MemoryRecords set = one(chance, magic, codec, kind);
                    byte[] bytes = new byte[set.sizeInBytes()];
                    set.buffer().duplicate().get(bytes);
                    made.addArray().add(magic).add(codec.id).add(hex(bytes)).add(read(hex(bytes)));
                }
            }
        }
        return made;
    }

    private static MemoryRecords one(Random chance, byte magic, CompressionType codec, TimestampType kind) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, Compression.of(codec).build(), kind, chance.nextInt(1000), START);
        int count = 1 + chance.nextInt(30);
        for (int i = 0; i < count; i++) {
            byte[] key = chance.nextInt(3) == 0 ? null : bytes(chance);
            byte[] value = chance.nextInt(3) == 0 ? null : bytes(chance);
            Header[] headers = new Header[magic < 2 ? 0 : chance.nextInt(3)];
            Arrays.setAll(headers, n -> new RecordHeader("h" + n, chance.nextInt(3) == 0 ? null : bytes(chance)));
            builder.append(magic == 0 ? -1 : START + chance.nextInt(5000) - 2500, key, value, headers);
        }
        return builder.build();
    }

    private static byte[] bytes(Random chance) {
        byte[] made = new byte[chance.nextInt(30) == 0 ? 60000 : chance.nextInt(50)];
        Arrays.fill(made, (byte) chance.nextInt());
        return made;
    }

    static ArrayNode read(String hex) {
        ArrayNode found = JSON.createArrayNode();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(unhex(hex))).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                ArrayNode row = found.addArray().add(record.offset()).add(record.timestamp());
                row.add(hex(record.key())).add(hex(record.value()));
                ArrayNode headers = row.addArray();
                for (Header header : record.headers()) {
                    headers.addArray().add(header.key()).add(header.value() == null ? null : hex(header.value()));
                }
            }
        }
        return found;
    }

    /** Control records in a row: [type, coordinator epoch] or [type, leader id, voter ids...]. */
    static JsonNode control(String hex) {
        ArrayNode found = JSON.createArrayNode();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(unhex(hex))).batches()) {
            batch.ensureValid();
            if (!batch.isControlBatch()) throw new IllegalStateException("no control batch");
            for (Record record : batch) {
                ControlRecordType type = ControlRecordType.parse(record.key());
                ArrayNode row = found.addArray().add(type.name());
                if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT) {
                    row.add(EndTransactionMarker.deserialize(record).coordinatorEpoch());
                } else if (type == ControlRecordType.LEADER_CHANGE) {
                    LeaderChangeMessage message =
                        ControlRecordUtils.deserializeLeaderChangeMessage(record);
                    row.add(message.leaderId());
                    message.voters().forEach(voter -> row.add(voter.voterId()));
                }
            }
        }
        return found;
    }

    private static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    private static byte[] unhex(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String hex(ByteBuffer data) {
        if (data == null) return null;
        byte[] copy = new byte[data.remaining()];
        data.duplicate().get(copy);
        return hex(copy);
    }
}
