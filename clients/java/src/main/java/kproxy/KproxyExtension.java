package kproxy;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives test methods a parameter {@link Kproxy}. One process serves a test class; rules, and what went through, are each
 * test's own. {@code @ExtendWith(KproxyExtension.class)}, or {@code @RegisterExtension} with a container of one's own.
 */
public final class KproxyExtension implements ParameterResolver, AfterEachCallback {
    private static final Namespace NAMESPACE = Namespace.create(KproxyExtension.class);

    private final KproxyContainer container;

    public KproxyExtension() {
        this(new KproxyContainer());
    }

    public KproxyExtension(KproxyContainer container) {
        this.container = container;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Kproxy.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        ExtensionContext wide = context.getParent().orElse(context); // of the class: it lives as long as that
        wide.getStore(NAMESPACE).getOrComputeIfAbsent("running", key -> new Running(container.start()), Running.class);
        return context.getStore(NAMESPACE).getOrComputeIfAbsent("view", key -> new Kproxy(container), Kproxy.class);
    }

    @Override
    public void afterEach(ExtensionContext context) {
        Kproxy view = context.getStore(NAMESPACE).remove("view", Kproxy.class);
        if (view != null) {
            view.close();
        }
    }

    private record Running(KproxyContainer container) implements CloseableResource {
        @Override
        public void close() {
            container.close();
        }
    }
}
