# One verb a line. Each makes .venv and fetches what it needs by itself. Types are checked while jars come.
.PHONY: demo quick test check compiled test-all docs fuzz soak bench bench-check stretches matrix java kits kit-packages containers jars tools programs house dashboard vendor suites conformance scale home wheel pyz sbom image image-check image-push image-sign chart chart-push chart-index release-notes release publish site

# Recipes and $(shell ...) pass these variables to a shell in quotes. `value` does not expand them.
$(foreach one,URL VERSION IMAGE DIST DASHBOARD,$(foreach char,' " ` $$ \,\
  $(if $(findstring $(char),$(value $(one))),$(error expected $(one) without $(char), got $(value $(one))))))

PYTHON ?= python3
WORKERS ?= 2
# Bytecode is kept, whatever the environment says: hundreds of processes start, each would compile all of kproxy again.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --dist loadfile
# Two workers more than cores: many tests wait for brokers, timeouts and clients.
ALL := -n $(shell expr $(WORKERS) + 2)
IN_PROCESS := -m "not process and not deep and not measured"
BIN := $(if $(filter Windows_NT,$(OS)),.venv/Scripts,.venv/bin)
READY := .venv/.ready-for-work
DEMO_READY := .venv/.ready-for-demo
FUZZ_READY := .venv/.ready-for-fuzz
DOCS_READY := .venv/.ready-for-docs
RELEASE_READY := .venv/.ready-for-release

demo: $(DEMO_READY)  ## show kproxy at work on a mock cluster; no Java needed
	$(BIN)/kproxy demo

quick: $(READY)  ## style, types and the tests that start no process: Java and other programs are not needed
	@$(MAKE) --no-print-directory -j2 check compiled CHOICE='$(IN_PROCESS)'
	$(PYTEST) -n $(WORKERS) $(IN_PROCESS)

test: java  ## style, types, imports, and the fixed selection of tests
	@$(MAKE) --no-print-directory -j2 tools $(READY)
	@$(MAKE) --no-print-directory -j2 check jars compiled
	$(PYTEST) $(ALL)

test-all: java  ## the same with every sweep whole; takes long
	@$(MAKE) --no-print-directory -j2 tools programs $(READY)
	@$(MAKE) --no-print-directory -j2 check jars
	KPROXY_TEST_ALL=1 $(PYTEST) $(ALL)

# pytest rewrites the tests' assertions and keeps the result: once, instead of once in each worker, and beside the checks.
compiled: $(READY)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --collect-only -qq $(CHOICE) >/dev/null || true

check: $(READY)  ## style, types, the direction of imports, and the budgets of make house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy gives its workers three seconds to start, which a busy machine may not have; it then ends with 2 and no result.
	$(BIN)/mypy -n $(WORKERS) || { test $$? -eq 2 && echo "mypy again, in one process" && $(BIN)/mypy; }
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lab.house --check

docs: $(DOCS_READY)  ## the site of docs/, built into site/; fails on a link that leads nowhere
	$(BIN)/python docs/tables.py
	$(BIN)/mkdocs build --strict

bench: java $(READY)  ## direct, HAProxy and kproxy side by side; prints ratios (shorter: make bench BENCH=--quick)
	$(BIN)/python -m tests.lab.bench.run $(BENCH)

scale: $(READY)  ## a very large cluster, measured and simulated without sockets, written to docs/scale.md
	$(BIN)/python -m tests.lab.scale.run

bench-check: java $(READY)  ## measure again, and fail where a ratio is a tenth below what was kept
	$(BIN)/python -m tests.lab.bench.run --check $(BENCH)

FUZZ_SECONDS ?= 600
fuzz: $(FUZZ_READY)  ## every fuzzing target in turn, FUZZ_SECONDS for each (some: make fuzz FUZZ="codec session")
	$(BIN)/python -m tests.lab.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ)

matrix: java $(READY)  ## every client with every broker through kproxy, written to tests/lab/matrix/RESULTS.md (a part: make matrix MATRIX="-k sarama")
	@PATH=$$PATH:/usr/local/go/bin:$$HOME/.cargo/bin; for tool in go node npm cargo cc make; do command -v $$tool >/dev/null || \
	  { echo "no $$tool found, the matrix builds clients with it (Debian: apt-get install golang-go nodejs npm cargo build-essential)" >&2; exit 1; }; done
	$(BIN)/python -m tests.support.java_jars 2.8.2 3.9.1 4.3.1 4.4.0
	@test -n "$(MATRIX)" || $(BIN)/python -m tests.lab.matrix.table --forget
	@KPROXY_MATRIX=1 $(BIN)/pytest -v tests/lab/matrix/test_matrix.py $(MATRIX); ended=$$?; $(BIN)/python -m tests.lab.matrix.table && exit $$ended
	@test -n "$(MATRIX)" || $(BIN)/python -m tests.lab.kits.run

kits: $(READY)  ## test each kit of clients/ with its language's Kafka client, and write packages into dist/kits; kits without their tools are left out and named (one: make kits KITS=go)
	$(BIN)/python -m tests.lab.kits.run $(KITS)

kit-packages: $(READY)  ## write the packages of the test kits into dist/kits, without tests (make kit-packages VERSION=1.2.3)
	$(BIN)/python -m tests.lab.kits.run --step package --version '$(VERSION)' $(KITS)

containers: $(READY) image  ## run the tests of the kits with containers of the image; needs a Docker engine
	KPROXY_IMAGE='$(IMAGE):dev' $(BIN)/python -m tests.lab.kits.run --step test java python

SUITE_FOLDERS = FRANZ_GO LIBRDKAFKA SARAMA KAFKA_GO AIOKAFKA KAFKA_PYTHON
suites: java $(READY)  ## other projects' own tests directly and through kproxy, from the folders that are named (make suites SARAMA=../sarama SUITES="--ways direct,prefix")
	$(BIN)/python -m tests.support.java_jars 4.4.0
	$(BIN)/python -m tests.lab.suites.run $(foreach one,$(SUITE_FOLDERS),$(if $($(one)),'$(one)=$($(one))')) $(SUITES)

conformance: java $(READY)  ## what each client does about each fault, written to tests/lab/conformance/RESULTS.md (a part: make conformance CONFORMANCE="-k librdkafka")
	$(BIN)/python -m tests.support.java_jars 4.4.0
	$(BIN)/python -m tests.lab.conformance.run $(CONFORMANCE)

stretches: $(READY)  ## tests that compare CPU time with a limit, one after the other: on a machine without other work
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -m measured tests

SOAK_SECONDS ?= 300
house: $(READY)  ## figures about the structure of the code, with their goals
	$(BIN)/python -m tests.lab.house
	$(BIN)/python -m tests.lab.frame_costs

soak: java $(READY)  ## brokers, workers, lines, disks and clients fail for SOAK_SECONDS; each record is checked (the same again: make soak SOAK="--seed 7")
	$(BIN)/python -m tests.support.java_jars 4.4.0
	$(BIN)/python -m tests.lab.soak.run --seconds $(SOAK_SECONDS) --completeness $(SOAK)

jars: java $(READY)  ## fetch Kafka's jars, the newest and the oldest that tests compare with, and Spark's Kafka connector
	$(BIN)/python -m tests.support.java_jars 4.4.0 3.9.1
	$(BIN)/python -m kproxy.lake.connector >/dev/null

java:
	@command -v javac >/dev/null || { echo "no Java compiler found, a JDK of 17 or newer is needed (Debian: apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }
	@found=$$(javac -version 2>&1 | sed 's/[^0-9]*\([0-9]*\).*/\1/'); test "$$found" -ge 17 || \
	  { echo "Java is $$found, 17 or newer is needed (Debian: apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }
	@command -v mvn >/dev/null || { echo "no mvn found, Maven is needed to fetch Kafka's jars (Debian: apt-get install maven)" >&2; exit 1; }

tools:  # tests that need one of them are left out where they cannot be had, and the last lines say how many
	@tests/bring-tools
	@tests/bring-npm axe-core

programs:  ## what only the whole sweeps need: iptables, a validator of SARIF, and helm, kustomize and a collector, built by Go in some minutes
	@tests/bring-tools iptables
	@tests/bring-npm sarif-multitool
	@tests/bring-go-tools

DASHBOARD ?= dist/kproxy-dashboard.json
dashboard:  ## write the Grafana dashboard for sharing and import to a file (another one: make dashboard DASHBOARD=FILE)
	@$(PYTHON) tools/dashboard.py '$(DASHBOARD)'

home:  ## write the repository's URL into all files that contain it: make home URL=https://HOST/OWNER/NAME (URL=none removes it)
	@$(PYTHON) tools/home.py '$(URL)'

vendor: $(READY)  ## fetch the libraries of the live view's page again, as vendor.json names them, and compare their hashes
	@command -v npm >/dev/null || { echo "no npm found (Debian: apt-get install npm)" >&2; exit 1; }
	$(BIN)/python -m tests.support.vendor

# The verbs of a release write to $(DIST). VERSION is 1.2.3, or the tag v1.2.3. IMAGE is the image without its tag.
DIST ?= dist
VERSION ?= 0.0.0
IMAGE ?= kproxy
override VERSION := $(patsubst v%,%,$(VERSION))
override IMAGE := $(shell echo '$(IMAGE)' | tr '[:upper:]' '[:lower:]')
BASE_IMAGE = python:3.11-slim-bookworm
HELM ?= helm
WITH_DIGEST = --format '{{.Manifest.Digest}}'

wheel: $(RELEASE_READY)  ## the wheel and the source distribution, with the version of the tag
	$(BIN)/python -m build --outdir '$(DIST)'

pyz: $(RELEASE_READY)  ## kproxy as one file for this platform and this version of Python
	@mkdir -p '$(DIST)'
	@# Modules that are compiled cannot be imported from a zip file; shiv unpacks them at the first start. -E lets workers find them.
	tag=$$($(BIN)/python -c 'import sys, sysconfig; print(sysconfig.get_platform() + "-cp%d%d" % sys.version_info[:2])') && \
	  $(BIN)/python -m shiv --console-script kproxy --extend-pythonpath --reproducible --output-file "$(DIST)/kproxy-$$tag.pyz" \
	  --python "/usr/bin/env python$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \
	  --disable-pip-version-check --quiet --constraint constraints.txt '.[demo,kafka,otlp,view]'

sbom: $(RELEASE_READY)  ## the packages of the image in the format CycloneDX, from an environment like that of the Dockerfile
	@mkdir -p '$(DIST)'
	rm -rf '$(DIST)/image' && $(BIN)/python -m venv '$(DIST)/image'
	SETUPTOOLS_SCM_PRETEND_VERSION='$(VERSION)' '$(DIST)/image/bin/pip' install -q --disable-pip-version-check -c constraints.txt '.[kafka]'
	'$(DIST)/image/bin/pip' uninstall -q -y pip setuptools
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --of JSON -o '$(DIST)/kproxy.cdx.json' '$(DIST)/image/bin/python'
	rm -rf '$(DIST)/image'

image:  ## the container image for this machine, with the version 0.0.0
	docker build -t '$(IMAGE):dev' .

image-check:  ## start the image in front of a mock cluster, and wait until its health check passes
	docker run --detach --name kproxy-check '$(IMAGE):dev' mock --admin 127.0.0.1:9190 --topic orders
	@for second in $$(seq 60); do sleep 1; docker inspect --format '{{.State.Health.Status}}' kproxy-check | grep -qx healthy && ok=1 && break; done; \
	  test -n "$$ok" || docker logs kproxy-check; docker rm --force kproxy-check >/dev/null; test -n "$$ok"

image-push:  ## build the image for amd64 and arm64 with provenance and SBOM, and push it
	@mkdir -p '$(DIST)'
	base=$$(docker buildx imagetools inspect $(BASE_IMAGE) $(WITH_DIGEST)) && docker buildx build --push \
	  --platform linux/amd64,linux/arm64 --provenance mode=max --sbom true --build-arg 'VERSION=$(VERSION)' \
	  --build-arg "PYTHON_IMAGE=$(BASE_IMAGE)@$$base" --tag '$(IMAGE):$(VERSION)' .
	docker buildx imagetools inspect '$(IMAGE):$(VERSION)' $(WITH_DIGEST) > '$(DIST)/image.digest'
	@echo "name=$(IMAGE)" >> "$${GITHUB_OUTPUT:-/dev/null}"
	@echo "digest=$$(cat '$(DIST)/image.digest')" >> "$${GITHUB_OUTPUT:-/dev/null}"

image-sign:  ## sign the pushed image by its digest, and attach the SBOM of `make sbom`
	cosign sign --yes "$(IMAGE)@$$(cat '$(DIST)/image.digest')"
	cosign attest --yes --type cyclonedx --predicate '$(DIST)/kproxy.cdx.json' "$(IMAGE)@$$(cat '$(DIST)/image.digest')"

chart:  ## the Helm chart with annotations of the version, checked and packed
	@rm -rf '$(DIST)/chart' && mkdir -p '$(DIST)/chart' && cp -rL deploy/helm/kproxy '$(DIST)/chart/kproxy'
	$(PYTHON) docs/chart_metadata.py '$(DIST)/chart/kproxy' '$(VERSION)'
	$(HELM) lint --strict '$(DIST)/chart/kproxy' --values deploy/helm/values/inside.yaml
	$(HELM) package '$(DIST)/chart/kproxy' --version '$(VERSION)' --app-version '$(VERSION)' --destination '$(DIST)'
	@rm -rf '$(DIST)/chart'

chart-push:  ## push the packed chart as an OCI artefact, and sign it by its digest
	$(HELM) push '$(DIST)/kproxy-$(VERSION).tgz' 'oci://$(IMAGE)/charts' 2>&1 | tee '$(DIST)/chart.log'
	cosign sign --yes "$(IMAGE)/charts/kproxy@$$(sed -n 's/^Digest: *//p' '$(DIST)/chart.log')"

chart-index:  ## the charts of all releases with their index, into site/charts
	@mkdir -p site/charts
	for tag in $$(git tag --list 'v[0-9]*'); do gh release download "$$tag" --pattern 'kproxy-[0-9]*.tgz' --dir site/charts --clobber || exit 1; done
	$(HELM) repo index site/charts
	cp deploy/helm/artifacthub-repo.yml site/charts

release-notes:  ## the section of VERSION in CHANGELOG.md, with absolute links in a workflow
	@mkdir -p '$(DIST)'
	@awk -v version='[$(VERSION)]' '$$1 == "##" {on = $$2 == version; next} on && !/^\[.*\]: /' CHANGELOG.md \
	  | sed "s#](\([^):]*\))#]($${GITHUB_REPOSITORY:+$$GITHUB_SERVER_URL/$$GITHUB_REPOSITORY/blob/v$(VERSION)/}\1)#g" > '$(DIST)/notes.md'
	@grep -q '[^[:space:]]' '$(DIST)/notes.md' || { echo 'expected a section [$(VERSION)] with changes, got none (at CHANGELOG.md)' >&2; exit 1; }

release: release-notes  ## the release of the tag at the code host, with all files of $(DIST), and the tag of the Go module
	gh release create 'v$(VERSION)' --verify-tag --title 'kproxy $(VERSION)' --notes-file '$(DIST)/notes.md' \
	  '$(DIST)'/*.whl '$(DIST)'/*.tar.gz '$(DIST)'/*.pyz '$(DIST)'/*.tgz '$(DIST)'/*.zip '$(DIST)'/*.cdx.json
	gh api 'repos/{owner}/{repo}/git/refs' -f 'ref=refs/tags/clients/go/v$(VERSION)' -f "sha=$$(git rev-parse HEAD)"

site:  ## start the workflow that builds the site, after a release
	gh workflow run docs.yml --ref main

publish: $(RELEASE_READY)  ## the wheel and the source distribution with attestations to the package index, by trusted publishing
	test -f '$(DIST)/kproxy_kafka-$(VERSION)-py3-none-any.whl'
	$(BIN)/python -m pypi_attestations sign '$(DIST)'/*.whl '$(DIST)'/*.tar.gz
	$(BIN)/python -m twine upload --non-interactive --attestations '$(DIST)'/*.whl '$(DIST)'/*.tar.gz '$(DIST)'/*.attestation

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; say which to take: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "$(PYTHON) cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(DEMO_READY): .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[demo]'
	@touch $@

$(READY): .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test,dev,demo,pipeline]'
	@touch $@ $(DEMO_READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(RELEASE_READY): .venv/pyvenv.cfg pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[release]'
	@touch $@

$(FUZZ_READY): $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	@touch $@
