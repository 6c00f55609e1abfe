# Every target sets itself up: a fresh clone needs make and Python 3.11+ only.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.ready
NATIVE := $(VENV)/.native
NATIVE_SOURCES := $(wildcard libs/axiom_native/*.toml libs/axiom_native/Cargo.lock libs/axiom_native/src/*.rs)
# Where cargo builds: nothing in the tree but an ignored folder.
NATIVE_BUILD := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" CARGO_TARGET_DIR="$(CURDIR)/.cache/native"

PROMETHEUS := .cache/prometheus

PEERS := .peers
PEER_dynamo := ai-dynamo-runtime==1.6.1
PEER_litellm := litellm[proxy]==1.80.5
PEER_sglang-router := sglang-router==0.3.2
PEER_vllm-router := vllm-router==0.1.17

.PHONY: help setup demo up test lint test-engine test-integration test-native test-native-sanitized wheels bench bench-peers lock clean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(STAMP) $(NATIVE)  ## make .venv with Axiom, the embedded servers and the tools; compiled parts where cargo is

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Axiom needs Python 3.11 or later; name one with make PYTHON=python3.x")'
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e '.[embedded,sim,dev]'
	@touch $@

# Without it everything works, and the decision's data structures run in Python.
$(NATIVE): $(STAMP) $(NATIVE_SOURCES)
	@if ! command -v cargo >/dev/null; then echo "no cargo here: Axiom runs on its Python twins"; exit 0; fi; \
	echo "compiling libs/axiom_native ..."; \
	if $(NATIVE_BUILD) $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		./libs/axiom_native >$(VENV)/native.log 2>&1; then touch $@; \
	else echo "libs/axiom_native was not built, Axiom runs on its Python twins: $(VENV)/native.log says why"; fi

wheels: $(STAMP)  ## build the distribution (pure Python) and the compiled one (abi3) into dist/
	$(VENV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	$(NATIVE_BUILD) $(VENV)/bin/maturin build --quiet --release --locked -m libs/axiom_native/Cargo.toml --out dist

test-native: $(STAMP)  ## the compiled part's own checks: rustfmt, clippy, its tests
	cd libs/axiom_native && cargo fmt --check
	cd libs/axiom_native && $(NATIVE_BUILD) cargo clippy --quiet --locked --all-targets --all-features -- -D warnings
	cd libs/axiom_native && $(NATIVE_BUILD) cargo test --quiet --locked --release

test-native-sanitized:  ## the compiled part's readers beside writers under a thread sanitizer; needs a nightly Rust
	cd libs/axiom_native && CARGO_TARGET_DIR="$(CURDIR)/.cache/native-sanitized" RUST_TEST_THREADS=1 \
		RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" TSAN_OPTIONS="suppressions=tests/sanitizer.supp" \
		cargo +nightly test --quiet --locked --release --target $$(rustc -vV | sed -n 's/host: //p') --test readers_beside_writers

demo: $(STAMP)   ## replay public workload data through three policies; table and HTML report
	@$(VENV)/bin/axiom demo

up: $(STAMP)     ## start the same stack and leave it running until Ctrl-C
	@$(VENV)/bin/axiom up

lint: $(STAMP)   ## ruff, mypy, import contracts
	$(VENV)/bin/ruff check libs services tests deploy
	$(VENV)/bin/ruff format --check libs services tests deploy
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

test: lint $(NATIVE) $(PROMETHEUS)/.ready  ## lint and the default suite
	$(VENV)/bin/pytest -n 2 --dist loadscope --no-loadscope-reorder

# Unpacked, not installed: an installed one is a service that starts.
$(PROMETHEUS)/.ready:
	@mkdir -p $(@D)
	@{ command -v prometheus && command -v promtool; } >/dev/null || { cd $(@D) \
		&& { apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; }; } \
		&& dpkg -x prometheus_*.deb . && rm prometheus_*.deb; } \
		&& touch $(CURDIR)/$@ || echo "no prometheus here, and no Debian package to be had: put prometheus and promtool on the PATH"

test-engine: $(STAMP)  ## the contract suite against a real vLLM on CPU (installs it into .venv-engine)
	tests/engine/run

test-integration: $(STAMP)  ## traces in a real Jaeger, dashboards and rules on Prometheus 3 (builds both from source, once)
	tests/stage/run

bench: $(STAMP)  ## measure the gateway beside its peers, and write the figures into docs/benchmarks.md
	$(VENV)/bin/axiom bench gateway --rounds 5 --document docs/benchmarks.md

bench-peers: $(patsubst %,$(PEERS)/%/.ready,litellm sglang-router vllm-router nginx dynamo dynamo_crate)  ## install what Axiom is measured beside

$(PEERS)/nginx/.ready:
	@mkdir -p $(@D)
	@command -v nginx >/dev/null || { cd $(@D) && apt-get download nginx && dpkg -x nginx_*.deb . && rm nginx_*.deb; } \
		|| echo "no nginx here, and no Debian package to be had: it will be absent"
	@touch $@

$(PEERS)/dynamo_crate/.ready: libs/axiom_cli/bench/dynamo_crate/src/main.rs
	@mkdir -p $(@D)
	@if command -v cargo >/dev/null; then echo "compiling Dynamo's index into $(@D) ..."; \
		cargo build --quiet --release --locked --manifest-path libs/axiom_cli/bench/dynamo_crate/Cargo.toml \
		--target-dir $(@D); else echo "no cargo here: Dynamo's index in Rust will be absent"; fi
	@touch $@

$(PEERS)/%/.ready:
	@$(PYTHON) -m venv $(PEERS)/$*
	@echo "installing $* into $(PEERS)/$* ..."
	@$(PEERS)/$*/bin/python -m pip install --quiet --disable-pip-version-check '$(PEER_$*)'
	@touch $@

lock: $(STAMP)   ## pin what pyproject.toml asks for
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --all-extras --no-emit-find-links --no-header --no-annotate -o requirements.lock pyproject.toml requirements.in

clean:           ## remove what the targets made
	rm -rf .venv .venv-engine .cache .peers out
