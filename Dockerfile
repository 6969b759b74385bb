# kproxy in a container: non-root, a root file system that may be read-only, no compiler and no pip in what runs.
#   docker build -t kproxy .
#   docker run -p 9092-9100:9092-9100 kproxy run --listen 0.0.0.0:9092 --advertise localhost:9093-9100 --upstream kafka:9092
# An image with a version is built from a base image with a digest, which names its content (docs/deploy.md):
#   docker build -t kproxy:1.2.3 --build-arg VERSION=1.2.3 --build-arg PYTHON_IMAGE=python@sha256:... .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
ARG PYTHON_IMAGE
ARG VERSION=0.0.0
RUN case "$VERSION $PYTHON_IMAGE" in \
      "0.0.0 "*|*@sha256:????????????????????????????????????????????????????????????????) ;; \
      *) echo "VERSION $VERSION: expected a PYTHON_IMAGE with @sha256:DIGEST, got $PYTHON_IMAGE" >&2; exit 1 ;; \
    esac
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kproxy kproxy
COPY rules/demo.yaml rules/demo.yaml
# The version is an argument, because .git with its tags is not part of the build.
RUN python -m venv /opt/kproxy \
 && SETUPTOOLS_SCM_PRETEND_VERSION=$VERSION /opt/kproxy/bin/pip install --no-cache-dir -c constraints.txt ".[kafka]" \
 && /opt/kproxy/bin/python -m compileall -q /opt/kproxy/lib \
 && /opt/kproxy/bin/pip uninstall -q -y pip setuptools

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/kproxy /opt/kproxy
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin kproxy \
 && install -d /etc/kproxy \
 && install -d -o kproxy -g kproxy /var/lib/kproxy
# Only root writes in the working directory, and no folder that kproxy can write is in Python's import path.
ENV PATH=/opt/kproxy/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 KPROXY_ADMIN=http://127.0.0.1:9190
USER 10001:10001
WORKDIR /etc/kproxy
VOLUME /var/lib/kproxy
EXPOSE 9092 9190
# SIGTERM begins a drain: requests in flight are answered first.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["kproxy", "ready"]
ENTRYPOINT ["kproxy"]
CMD ["run", "--config", "/etc/kproxy/kproxy.yaml"]
