import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Fills Kafka's generated message classes with random values. Which fields a version has, and where null is legal, is
 * taken from the class's own SCHEMAS; the values go in through its setters.
 */
final class RandomMessage {
    private final Random chance;

    /** The schemas do not say that FetchSnapshot's records, unlike those of Produce and Fetch, may not be null. */
    boolean nullRecords = true;

    RandomMessage(Random chance) {
        this.chance = chance;
    }

    Object make(Class<?> of, short version) throws Exception {
        Object made = of.getDeclaredConstructor().newInstance();
        Map<String, Method> setters = setters(of);
        Schema schema = ((Schema[]) of.getField("SCHEMAS").get(null))[version];
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields) {
                setTagged(made, setters, (TaggedFields) field.def.type, version);
            } else {
                set(made, setters, field.def.name, field.def.type, version);
            }
        }
        return made;
    }

    private static Map<String, Method> setters(Class<?> of) {
        Map<String, Method> found = new HashMap<>();
        for (Method method : of.getMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                found.put(method.getName().substring(3).toLowerCase(), method);
            }
        }
        return found;
    }

    private void set(Object made, Map<String, Method> setters, String name, Type type, short version) throws Exception {
        Method setter = setters.get(name.replace("_", "").toLowerCase());
        if (setter == null) {
            throw new IllegalStateException("no setter for " + name + " in " + made.getClass());
        }
        java.lang.reflect.Type holds = setter.getGenericParameterTypes()[0];
        setter.invoke(made, value(setter.getParameterTypes()[0], holds, type, version));
    }

    /** Known tags one time in two; unknown ones, which must be kept, one time in eight. */
    @SuppressWarnings("unchecked")
    private void setTagged(Object made, Map<String, Method> setters, TaggedFields tags, short version) throws Exception {
        Field hidden = TaggedFields.class.getDeclaredField("fields");
        hidden.setAccessible(true);
        for (var tag : ((Map<Integer, org.apache.kafka.common.protocol.types.Field>) hidden.get(tags)).values()) {
            if (chance.nextBoolean()) {
                set(made, setters, tag.name, tag.type, version);
            }
        }
        if (chance.nextInt(8) == 0) {
            List<RawTaggedField> unknown = ((Message) made).unknownTaggedFields();
            int first = 100 + chance.nextInt(100);
            unknown.add(new RawTaggedField(first, bytes()));
            unknown.add(new RawTaggedField(first + 1 + chance.nextInt(100000), bytes()));
        }
    }

    private Object value(Class<?> of, java.lang.reflect.Type holds, Type type, short version) throws Exception {
        boolean isRecords = of.getSimpleName().equals("BaseRecords");
        if (type.isNullable() && (nullRecords || !isRecords) && chance.nextInt(5) == 0) {
            return null;
        }
        if (of == boolean.class) return chance.nextBoolean();
        if (of == byte.class || of == Byte.class) return (byte) chance.nextInt();
        if (of == short.class || of == Short.class) return (short) number();
        if (of == int.class || of == Integer.class) return type == Type.UINT16 ? chance.nextInt(65536) : (int) number();
        if (of == long.class || of == Long.class) return type == Type.UNSIGNED_INT32 ? number() & 0xffffffffL : number();
        if (of == double.class) return DOUBLES[chance.nextInt(DOUBLES.length)] + chance.nextInt(3);
        if (of == String.class) return text();
        if (of == Uuid.class) return chance.nextInt(6) == 0 ? Uuid.ZERO_UUID : new Uuid(chance.nextLong(), chance.nextLong());
        if (of == byte[].class) return bytes();
        if (of == ByteBuffer.class) return ByteBuffer.wrap(bytes());
        if (isRecords) return records(of);
        if (Collection.class.isAssignableFrom(of)) return collection(of, holds, type, version);
        return make(of, version);
    }

    /** The class that holds records; it has moved between packages. */
    private Object records(Class<?> of) throws Exception {
        Class<?> holder = Class.forName(of.getPackageName() + ".MemoryRecords");
        return holder.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes()));
    }

    @SuppressWarnings("unchecked")
    private Object collection(Class<?> of, java.lang.reflect.Type holds, Type type, short version) throws Exception {
        boolean isList = of.isAssignableFrom(ArrayList.class);
        ParameterizedType named = (ParameterizedType) (isList ? holds : of.getGenericSuperclass());
        Class<?> element = (Class<?>) named.getActualTypeArguments()[0];
        Collection<Object> made = isList ? new ArrayList<>() : (Collection<Object>) of.getDeclaredConstructor().newInstance();
        int count = chance.nextInt(40) == 0 && Number.class.isAssignableFrom(element) ? 150 : chance.nextInt(3);
        for (int i = 0; i < count; i++) {
            made.add(value(element, element, type.arrayElementType().get(), version));
        }
        return made;
    }

    private static final double[] DOUBLES = {0.0, -0.0, 1.5, Double.NaN, Double.POSITIVE_INFINITY, Double.MIN_VALUE, -1e300};
    private static final String[] WORDS = {"", "orders", "a.b-c_d", "Ünïcödé", "語", "\uD83D\uDE00", "\u0000", "\"\\\n"};

    private long number() {
        switch (chance.nextInt(4)) {
            case 0: return chance.nextInt(3) - 1;
            case 1: return chance.nextInt();
            default: return chance.nextLong();
        }
    }

    private String text() {
        StringBuilder made = new StringBuilder(WORDS[chance.nextInt(WORDS.length)]);
        int more = chance.nextInt(30) == 0 ? 100 + chance.nextInt(200) : chance.nextInt(6);
        for (int i = 0; i < more; i++) {
            made.append((char) ('a' + chance.nextInt(26)));
        }
        return made.toString();
    }

    private byte[] bytes() {
        byte[] made = new byte[chance.nextInt(20) == 0 ? 100 + chance.nextInt(300) : chance.nextInt(10)];
        chance.nextBytes(made);
        return made;
    }
}
