package kproxy;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** One test's view of a running kproxy: its rules, which go with the test, and what went through since it began. */
public final class Kproxy implements AutoCloseable {
    /** How long a wait may take that names no time. */
    public static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final String RULE_TTL = "1h"; // after which a rule goes by itself, should a test not end
    private static final long LONGEST_WAIT = 60_000; // milliseconds that kproxy waits for exchanges at a time
    private static final String JSON = "application/json";

    private final HttpClient http = HttpClient.newHttpClient();
    private final KproxyServer server;
    private final List<Rule> rules = new ArrayList<>();
    private final String place;

    public Kproxy(KproxyServer server) {
        this.server = server;
        place = (String) ask("GET", "/api/exchanges?limit=1", JSON, "").get("place");
    }

    /** Returns host:port for clients. */
    public String bootstrapServers() {
        return server.getBootstrapServers();
    }

    /**
     * Puts a rule into force, for the next frame of every connection; it is removed with the test, or when it is closed.
     *
     * @param yaml a rule as in a rule file, without a name: {@code {kind: delay, match: {api: Produce}, delay: 50ms}}
     */
    public Rule inject(String yaml) {
        Rule rule = new Rule("injected-" + (rules.size() + 1));
        ask("POST", rule.path("?origin=test&ttl=" + RULE_TTL), "application/yaml", yaml);
        rules.add(rule);
        return rule;
    }

    /** Asserts that each of these rules, or each that was put in, changed something that has gone out. */
    public void assertApplied(Rule... some) {
        List<Rule> wanted = some.length > 0 ? List.of(some) : rules;
        if (wanted.isEmpty()) {
            throw new AssertionError("this test has put in no rule");
        }
        wanted.forEach(rule -> rule.check(rule.counters().applied() > 0, "was not applied"));
    }

    /**
     * Returns what went through since the test began and is over, oldest first, where the filter holds: in the language
     * of {@code kproxy tail}, such as {@code ~k produce ~t orders}; empty: everything.
     */
    public List<Exchange> exchanges(String filter) {
        List<Exchange> found = new ArrayList<>();
        String before = "";
        while (before != null) {
            Map<String, Object> page = page(filter, "&limit=1000&before=" + before);
            if (!Long.valueOf(0).equals(page.get("gone"))) {
                throw new AssertionError("exchanges of this test are not kept any more: a process keeps 20,000");
            }
            for (Object row : (List<?>) page.get("rows")) {
                Map<String, Object> values = new HashMap<>();
                Iterator<?> cells = ((List<?>) row).iterator();
                ((List<?>) page.get("columns")).forEach(name -> values.put((String) name, cells.next()));
                if (values.get("outcome") != null) { // else it is under way
                    found.add(new Exchange(values));
                }
            }
            before = (String) page.get("next");
        }
        Collections.reverse(found);
        return found;
    }

    /** Returns the same as soon as there are so many. */
    public List<Exchange> awaitExchanges(String filter, int count) {
        return awaitExchanges(filter, count, PATIENCE);
    }

    /** Returns the same as soon as there are so many; fails after that time, which is a minute at most. */
    public List<Exchange> awaitExchanges(String filter, int count, Duration timeout) {
        long most = Math.min(timeout.toMillis(), LONGEST_WAIT);
        if (Boolean.TRUE.equals(page(filter, "&limit=1&wait=" + most + "ms&count=" + count).get("reached"))) {
            return exchanges(filter);
        }
        throw new AssertionError("\"" + filter + "\" holds for fewer than " + count + " exchanges after " + most + " ms");
    }

    /** Removes the rules that were put in. */
    @Override
    public void close() {
        rules.forEach(Rule::close);
        rules.clear();
    }

    /** How far a rule came: its selectors held, its trigger let it act, what it did has gone out. */
    public record Counters(long matched, long fired, long applied) {
        private static Counters of(Map<?, ?> rule) {
            return new Counters((Long) rule.get("matched"), (Long) rule.get("fired"), (Long) rule.get("applied"));
        }
    }

    /** A request with its response: the columns of kproxy's rows by name, such as api, topic, client and node. */
    public record Exchange(Map<String, Object> values) {
        /** Returns the names of the errors in the response. */
        public List<String> errors() {
            return ((List<?>) values.get("errors")).stream().map(String.class::cast).toList();
        }

        /** Returns the time from the request to its response; null without one. */
        public Duration latency() {
            Number milliseconds = (Number) values.get("latency");
            return milliseconds == null ? null : Duration.ofNanos((long) (milliseconds.doubleValue() * 1e6));
        }
    }

    /** An answer of the admin API that says what is wrong. */
    public static final class Refusal extends RuntimeException {
        public final String code;

        private Refusal(Map<?, ?> error) {
            super(error.get("message") + " " + error.get("mistakes"));
            code = (String) error.get("code");
        }
    }

    /** A rule that a test has put in. */
    public final class Rule implements AutoCloseable {
        public final String name;

        private Rule(String name) {
            this.name = name;
        }

        /** Returns as soon as the rule has fired so often. */
        public Counters await(int hits) {
            return await(hits, PATIENCE);
        }

        /** Returns as soon as the rule has fired so often; fails after that time. */
        public Counters await(int hits, Duration timeout) {
            String query = "/wait?hits=" + hits + "&timeout=" + timeout.toMillis() + "ms";
            Map<String, Object> found = ask("POST", path(query), JSON, "");
            check((Boolean) found.get("reached"), "has not fired " + hits + " times");
            return Counters.of((Map<?, ?>) found.get("rule"));
        }

        private void check(boolean fact, String otherwise) {
            if (!fact) {
                throw new AssertionError("the rule \"" + name + "\" " + otherwise + ": " + counters());
            }
        }

        /** Returns the counters of this moment. */
        public Counters counters() {
            return Counters.of(ask("GET", path(""), JSON, ""));
        }

        /** Takes the rule out; once more is no mistake. */
        @Override
        public void close() {
            try {
                ask("DELETE", path(""), JSON, "");
            } catch (Refusal refusal) {
                if (!refusal.code.equals("no_such_rule")) {
                    throw refusal;
                }
            }
        }

        private String path(String rest) {
            return "/api/rules/" + name + rest;
        }
    }

    private Map<String, Object> page(String filter, String more) {
        String query = "?after=" + place + "&filter=" + URLEncoder.encode(filter, UTF_8) + more;
        return ask("GET", "/api/exchanges" + query, JSON, "");
    }

    @SuppressWarnings("unchecked")
    private Map<String, Object> ask(String method, String path, String media, String body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.getAdminUrl() + path))
                .header("Authorization", "Bearer " + server.getAdminToken())
                .header("Content-Type", media).method(method, BodyPublishers.ofString(body)).build();
        var answer = http.sendAsync(request, BodyHandlers.ofString()).join();
        Map<String, Object> found = (Map<String, Object>) Json.read(answer.body());
        if (answer.statusCode() >= 400) {
            throw new Refusal((Map<?, ?>) found.get("error"));
        }
        return found;
    }
}
