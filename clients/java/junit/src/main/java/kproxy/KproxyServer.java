package kproxy;

/** A kproxy that tests start and stop: a process ({@link KproxyProcess}) or a container. */
public interface KproxyServer extends AutoCloseable {
    /** Starts kproxy unless it runs, and returns when clients can connect. */
    void start();

    /** Returns host:port for clients. */
    String getBootstrapServers();

    /** Returns the URL of the admin API. */
    String getAdminUrl();

    /** Returns the token of the admin API, or an empty string if the API needs no token. */
    default String getAdminToken() {
        return "";
    }

    /** Stops kproxy, and returns when it has stopped. */
    @Override
    void close();
}
