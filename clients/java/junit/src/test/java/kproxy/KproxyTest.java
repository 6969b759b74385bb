package kproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(KproxyExtension.class)
class KproxyTest {
    @Test
    void rulesGoWithTheirTest(Kproxy first) {
        var rule = first.inject("{kind: delay, delay: 1ms}");
        rule.close();
        rule.close();
        var other = first.inject("{kind: delay, delay: 1ms}");
        assertEquals(0, other.counters().matched());
        first.close();
        assertEquals("no_such_rule", assertThrows(Kproxy.Refusal.class, other::counters).code);
        assertEquals(List.of(), first.exchanges(""));
    }

    @Test
    void whatIsWrongIsSaid(Kproxy kproxy) {
        says("unknown error \"NOPE\"", Kproxy.Refusal.class, () -> kproxy.inject("{kind: error, error: NOPE}"));
        says("filter, column", Kproxy.Refusal.class, () -> kproxy.exchanges("~nothing"));
        says("expected an injected rule, got none", AssertionError.class, kproxy::assertApplied);
        var rule = kproxy.inject("{kind: delay, match: {api: Fetch}, delay: 1ms}");
        says("was not applied", AssertionError.class, kproxy::assertApplied);
        says("has not fired 1 times: Counters[matched=0, fired=0", AssertionError.class, () -> rule.await(1, Duration.ofMillis(50)));
        says("expected 1 exchanges in 50 ms, got fewer", AssertionError.class, () -> kproxy.awaitExchanges("~k fetch", 1, Duration.ofMillis(50)));
    }

    @Test
    void whatDoesNotStartSaysWhy() {
        try (var wrong = new KproxyProcess().withRules(Path.of("/no/such/file.yaml"))) {
            says("/no/such/file.yaml", IllegalStateException.class, wrong::start);
            assertFalse(wrong.isRunning());
        }
        says("set KPROXY", RuntimeException.class, new KproxyProcess().withCommand("no-such-program-here")::start);
    }

    @Test
    void aProcessStartsOnceAndCloses() {
        var process = new KproxyProcess().with("--brokers", "1").with("--seed", "7");
        try (process) {
            process.start();
            String address = process.getBootstrapServers();
            process.start();
            assertEquals(address, process.getBootstrapServers());
            assertTrue(process.isRunning());
        }
        assertFalse(process.isRunning());
    }

    @Test
    void jsonIsRead() {
        assertEquals(Map.of("a", Arrays.asList(1L, -2.5, 1e3, null, true, "x\n\"é\\"), "b", Map.of(), "c", List.of()),
                Json.read(" {\"a\": [1, -2.5, 1e3, null, true, \"x\\n\\\"\\u00e9\\\\\"],\n \"b\": {}, \"c\":[ ]}"));
    }

    private static void says(String words, Class<? extends Throwable> kind, org.junit.jupiter.api.function.Executable what) {
        String message = assertThrows(kind, what).getMessage();
        assertTrue(message.contains(words), message);
    }
}
