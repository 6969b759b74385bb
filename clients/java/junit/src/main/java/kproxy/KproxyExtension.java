package kproxy;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Passes a {@link Kproxy} to test methods. Tests of a class share a server; each test has its own rules and exchanges.
 * {@code @ExtendWith(KproxyExtension.class)} starts a process, {@code @RegisterExtension} takes another server.
 */
public final class KproxyExtension implements ParameterResolver {
    private static final Namespace NAMESPACE = Namespace.create(KproxyExtension.class);

    private final KproxyServer server;

    public KproxyExtension() {
        this(new KproxyProcess());
    }

    public KproxyExtension(KproxyServer server) {
        this.server = server;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Kproxy.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        ExtensionContext wide = context.getParent().orElse(context); // of the class
        wide.getStore(NAMESPACE).getOrComputeIfAbsent("running", key -> start(), CloseableResource.class);
        Kproxy view = context.getStore(NAMESPACE).getOrComputeIfAbsent("view", key -> new Kproxy(server), Kproxy.class);
        context.getStore(NAMESPACE).getOrComputeIfAbsent("closing", key -> view::close, CloseableResource.class);
        return view;
    }

    private CloseableResource start() {
        server.start();
        return server::close;
    }
}
