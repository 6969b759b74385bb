package kproxy;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reader of valid JSON: maps, lists, strings, Long, Double, Boolean and null. */
final class Json {
    private static final Pattern TOKEN = Pattern.compile("[\\s,:]*(\"(?:[^\"\\\\]|\\\\.)*+\"|[\\[\\]{}]|[^\\s,:\\]}]+)");
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");

    private final Matcher tokens;

    private Json(String text) {
        tokens = TOKEN.matcher(text);
    }

    static Object read(String text) {
        Json json = new Json(text);
        return json.value(json.next());
    }

    private String next() {
        tokens.find();
        return tokens.group(1);
    }

    private Object value(String token) {
        switch (token.charAt(0)) {
            case '{':
                Map<String, Object> map = new LinkedHashMap<>();
                for (String one = next(); !one.equals("}"); one = next()) {
                    map.put(text(one), value(next()));
                }
                return map;
            case '[':
                List<Object> list = new ArrayList<>();
                for (String one = next(); !one.equals("]"); one = next()) {
                    list.add(value(one));
                }
                return list;
            case '"':
                return text(token);
            case 'n':
                return null;
            case 't', 'f':
                return Boolean.valueOf(token);
            default:
                return token.matches("-?\\d+") ? (Object) Long.valueOf(token) : Double.valueOf(token);
        }
    }

    private static String text(String token) {
        return ESCAPE.matcher(token.substring(1, token.length() - 1)).replaceAll(found -> {
            String code = found.group(1);
            int known = code == null ? "bfnrt".indexOf(found.group(2)) : -1;
            String plain = code != null ? String.valueOf((char) Integer.parseInt(code, 16))
                    : known < 0 ? found.group(2) : String.valueOf("\b\f\n\r\t".charAt(known));
            return Matcher.quoteReplacement(plain);
        });
    }
}
