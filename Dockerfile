# kproxy in a container: non-root, a root file system that may be read-only, no compiler and no pip in what runs.
#   docker build -t kproxy --build-arg VERSION=1.2.3 .
#   docker run -p 9092-9100:9092-9100 kproxy run --listen 0.0.0.0:9092 --advertise localhost:9093-9100 --upstream kafka:9092
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kproxy kproxy
COPY rules/demo.yaml rules/demo.yaml
# What `kproxy --version` says: the tags that it comes from elsewhere stay outside, with all of .git.
ARG VERSION=0.0.0
RUN python -m venv /opt/kproxy \
 && SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION /opt/kproxy/bin/pip install --no-cache-dir -c constraints.txt ".[kafka]" \
 && /opt/kproxy/bin/python -m compileall -q /opt/kproxy/lib \
 && /opt/kproxy/bin/pip uninstall -q -y pip setuptools

FROM python:3.11-slim-bookworm
COPY --from=build /opt/kproxy /opt/kproxy
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin kproxy \
 && install -d -o kproxy -g kproxy /etc/kproxy /var/lib/kproxy
ENV PATH=/opt/kproxy/bin:$PATH PYTHONDONTWRITEBYTECODE=1 KPROXY_ADMIN=http://127.0.0.1:9190
USER 10001:10001
WORKDIR /var/lib/kproxy
VOLUME /var/lib/kproxy
EXPOSE 9092 9190
# SIGTERM begins a drain: requests in flight are answered first.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["kproxy", "ready"]
ENTRYPOINT ["kproxy"]
CMD ["run", "--config", "/etc/kproxy/kproxy.yaml"]
