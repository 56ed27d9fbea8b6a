# make run    install into .venv and measure the built-in simulator
# make test   install what tests need and run them
# make check  format, lint, types and the import contract
# make build  wheel and source distribution in dist/
# make test-engines  install vLLM for CPU (5 GB) and measure it for real, next to its own benchmarks (70 min)
# make test-ray  install Ray (490 MB), run workers on a real cluster of three nodes and applications on Ray Serve (ten minutes)
# make test-routers  install nginx, HAProxy, vllm-router, sglang-router, smg and LiteLLM (1 GB) and put each in front of a fleet (five minutes)
# make test-harnesses  install guidellm, aiperf, inference-perf, sglang, genai-bench and vLLM (9 GB) and run each in our place
# make test-kubernetes  build a Kubernetes control plane from Debian's packages (12 CPU minutes, once) and test on it (13 CPU minutes)
# make test-image  build deploy/Dockerfile on a base of Debian's packages, without a registry, and start it as a pod does (needs root, buildah, podman)
# make chaos  hostile servers, kills, damaged stores and mutated inputs against the command line (under ten minutes)
# make bench  our own speed and error against a server that logs the truth (a few minutes; leave the machine alone meanwhile)

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
KUBERNETES ?= .kubernetes
IMAGES ?= .images
ATONCE ?= 2  # processes of tests; a file stays in one

.PHONY: run test test-engines test-routers test-ray test-harnesses test-kubernetes test-image check chaos build bench docs clean

run: .venv/core
	$(BIN)/inferometer run --rate 20 --duration 30s $(ARGS) || [ $$? = 4 ]  # exit code 4, not valid as a measurement, is no error of make

test: .venv/test
	$(BIN)/python -m pytest -n $(ATONCE) --dist loadfile $(ARGS)

test-engines:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh deploy/install-venv.sh "$(PYTHON)"
	sh deploy/install-engines.sh "$(PYTHON)" .venv-engines
	sh deploy/install-llama.sh .venv-engines
	INFEROMETER_ENGINES=1 INFEROMETER_MODELS=.venv-engines .venv-engines/bin/python -m pytest -s tests/engines $(ARGS)

test-ray: .venv/ray
	$(BIN)/python -m build --wheel --outdir dist
	INFEROMETER_RAY=1 INFEROMETER_WHEEL="$$(ls dist/*.whl | tail -1)" $(BIN)/python -m pytest -s tests/on_ray $(ARGS)

test-routers: .venv/test
	sh deploy/install-routers.sh "$(PYTHON)" .venv-routers
	INFEROMETER_ROUTERS=.venv-routers $(BIN)/python -m pytest -s tests/routers tests/integration/test_fleet_runs.py $(ARGS)

test-harnesses: .venv/test
	sh deploy/install-harnesses.sh $(BIN)/python .venv-harnesses
	INFEROMETER_HARNESSES="$$PWD/.venv-harnesses" $(BIN)/python -m pytest -s tests/harnesses tests/on_kubernetes/test_harness_in_pod.py tests/on_kubernetes/test_vllm_in_pod.py $(ARGS)

# With the other tools where make test-harnesses has installed them: they are started in pods.
ON_KUBERNETES = INFEROMETER_KUBERNETES_ALL=1 INFEROMETER_HELM=$(KUBERNETES)/bin $(if $(wildcard .venv-harnesses/vllm-benchmark/done),INFEROMETER_HARNESSES="$(CURDIR)/.venv-harnesses")

test-kubernetes: .venv/test
	bash deploy/install-kubernetes.sh $(KUBERNETES)
	sh deploy/install-helm.sh $(BIN)/python $(KUBERNETES)
	$(ON_KUBERNETES) $(BIN)/python -m pytest -s tests/on_kubernetes $(ARGS)
	$(ON_KUBERNETES) INFEROMETER_KUBERNETES=$(KUBERNETES)/bin tests/kubernetes_stand_in/isolated.sh $(BIN)/python -m pytest -s tests/on_kubernetes $(ARGS)

test-image: .venv/test
	sh deploy/build-image.sh $(IMAGES)
	INFEROMETER_IMAGES="$(abspath $(IMAGES))" $(BIN)/python -m pytest tests/image $(ARGS)

check: .venv/check
	$(BIN)/ruff format --check src tests bench docs
	$(BIN)/ruff check src tests bench docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

build: .venv/test
	rm -rf build dist
	$(BIN)/python -m build --outdir dist

chaos: .venv/test
	$(BIN)/python -m tests.chaos $(ARGS)

bench: .venv/test
	$(BIN)/python bench/wire.py $(ARGS)

docs: .venv/core
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv build dist src/*.egg-info

# Debian and Ubuntu ship python3 without the module that makes environments.
.venv/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'error: Python 3.11 or newer is needed, got' "$$($(PYTHON) --version)"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || sh deploy/install-venv.sh "$(PYTHON)"
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/pip pyproject.toml constraints.txt setup.py src/inferometer/wire/_reader.c src/inferometer/router/_relay.c
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

# Of dashscope only a file is wanted, Qwen's tokenizer of 151k entries: none of its dependencies.
.venv/test: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps dashscope
	@sh deploy/install-chromium.sh
	@touch $@

.venv/ray: .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,ray,ray-serve]'
	@touch $@

.venv/check: .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,check]'
	@touch $@
