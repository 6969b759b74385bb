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

/** View of one test: its rules, removed at the end of the test, and the exchanges since its start. */
public final class Kproxy implements AutoCloseable {
    /** Default timeout of waits. */
    public static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final String RULE_TTL = "1h"; // lifetime of a rule whose test was killed
    private static final long LONGEST_WAIT = 60_000; // milliseconds of one wait for exchanges
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
     * Applies a rule from the next frame of each connection on, until the end of the test or until it is closed.
     *
     * @param yaml a rule as in a rule file, without a name: {@code {kind: delay, match: {api: Produce}, delay: 50ms}}
     */
    public Rule inject(String yaml) {
        Rule rule = new Rule("injected-" + (rules.size() + 1));
        ask("POST", rule.path("?origin=test&ttl=" + RULE_TTL), "application/yaml", yaml);
        rules.add(rule);
        return rule;
    }

    /** Asserts that each of these rules, or each injected one, changed something that was sent. */
    public void assertApplied(Rule... some) {
        List<Rule> wanted = some.length > 0 ? List.of(some) : rules;
        if (wanted.isEmpty()) {
            throw new AssertionError("expected an injected rule, got none");
        }
        wanted.forEach(rule -> rule.check(rule.counters().applied() > 0, "was not applied"));
    }

    /**
     * Returns the finished exchanges of the test that match, oldest first. The filter is in the language of
     * {@code kproxy tail}, such as {@code ~k produce ~t orders}; an empty one matches all.
     */
    public List<Exchange> exchanges(String filter) {
        List<Exchange> found = new ArrayList<>();
        String before = "";
        while (before != null) {
            Map<String, Object> page = page(filter, "&limit=1000&before=" + before);
            if (!Long.valueOf(0).equals(page.get("gone"))) {
                throw new AssertionError("expected all exchanges of the test, got a part: a process keeps the last 20,000, and at most 64 MiB");
            }
            for (Object row : (List<?>) page.get("rows")) {
                Map<String, Object> values = new HashMap<>();
                Iterator<?> cells = ((List<?>) row).iterator();
                ((List<?>) page.get("columns")).forEach(name -> values.put((String) name, cells.next()));
                if (values.get("outcome") != null) { // null: not finished
                    found.add(new Exchange(values));
                }
            }
            before = (String) page.get("next");
        }
        Collections.reverse(found);
        return found;
    }

    /** Returns the same when this number of exchanges matches. */
    public List<Exchange> awaitExchanges(String filter, int count) {
        return awaitExchanges(filter, count, PATIENCE);
    }

    /** Returns the same when this number of exchanges matches; fails after the timeout, at most a minute. */
    public List<Exchange> awaitExchanges(String filter, int count, Duration timeout) {
        long most = Math.min(timeout.toMillis(), LONGEST_WAIT);
        if (Boolean.TRUE.equals(page(filter, "&limit=1&wait=" + most + "ms&count=" + count).get("reached"))) {
            return exchanges(filter);
        }
        throw new AssertionError("filter \"" + filter + "\": expected " + count + " exchanges in " + most + " ms, got fewer");
    }

    /** Removes the injected rules. */
    @Override
    public void close() {
        rules.forEach(Rule::close);
        rules.clear();
    }

    /** Counters of a rule: its selectors matched, its trigger fired, its change was sent. */
    public record Counters(long matched, long fired, long applied) {
        private static Counters of(Map<?, ?> rule) {
            return new Counters((Long) rule.get("matched"), (Long) rule.get("fired"), (Long) rule.get("applied"));
        }
    }

    /** A request with its response: columns of the live view by name, such as api, topic, client and node. */
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

    /** Error response of the admin API. */
    public static final class Refusal extends RuntimeException {
        public final String code;

        private Refusal(Map<?, ?> error) {
            super(error.get("message") + " " + error.get("mistakes"));
            code = (String) error.get("code");
        }
    }

    /** A rule of a test. */
    public final class Rule implements AutoCloseable {
        public final String name;

        private Rule(String name) {
            this.name = name;
        }

        /** Returns when the rule has fired this number of times. */
        public Counters await(int hits) {
            return await(hits, PATIENCE);
        }

        /** Returns when the rule has fired this number of times; fails after the timeout. */
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

        /** Returns the current counters. */
        public Counters counters() {
            return Counters.of(ask("GET", path(""), JSON, ""));
        }

        /** Removes the rule; it is not an error if the rule was removed before. */
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
