# make run    open the console on an embedded engine (sets everything up first)
# make test   the whole suite (sets everything up first)
# make check  lint, types and import contracts alone
# make simulate MINUTES=60 [WHAT=core|fleet], make parity   what the suite proves in small, for longer (docs/proof.md)
# make openapi  write docs/openapi.json, what the control API is
# make soak KILLS=100 REPEATS=50 OVERLOAD_S=60 TIMES=10 BROKER_S=60 MINUTES=20
#                                 replicas killed under load, clients that leave in every way, ten times too many
#                                 requests, a broker that hangs, and long steady work (docs/proof.md)
# make soak WHAT=console MINUTES=14.4  a console for a simulated day at 100 times its speed, and one whose terminal
#                                 hangs and whose server is cut off, hangs and is killed
# make test-ray  replicas on a Ray cluster of two nodes, on this machine (installs the extra; a few minutes)
# make test-web      the console in headless Chromium, where that is installed
# make bench  measure the engine, beside the peers that make peers has built
# make serve-peers   real vLLM and llama.cpp servers, small, until Ctrl-C (docs/foreign.md)
# make test-peers    the console on them;  make peer-numbers  its figures beside those of others

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: openapi run test check model bench peers serve-peers test-peers test-web test-ray peer-numbers record-pages
.PHONY: simulate parity soak clean

run: $(STAMP)
	@$(BIN)/infer-console --embedded

test: $(STAMP) model check
	$(BIN)/python -m pytest -q --durations=15

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

model: $(STAMP)
	@$(BIN)/python -m infer_engine fetch >/dev/null

simulate: $(STAMP)
	@for what in $(or $(WHAT),$(if $(SEED),core,core fleet)); do echo "== $$what"; \
	  $(BIN)/python tests/simulation/campaign.py --what $$what $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) || exit 1; done

openapi: $(STAMP)
	$(BIN)/python bench/openapi.py

bench: $(STAMP) model
	$(BIN)/python bench/run.py $(if $(ONLY),--only $(ONLY)) $(if $(REPEATS),--repeats $(REPEATS))

test-ray: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[engine,test,ray]'
	$(BIN)/python -m pytest -q --durations=15 tests/cluster/ray_cluster.py

peers: $(STAMP) model
	$(BIN)/python bench/build_peers.py

serve-peers: $(STAMP) model
	@$(BIN)/python bench/serve_peers.py

test-peers: $(STAMP) model
	$(BIN)/python -m pytest -q --durations=5 tests/peers

test-web: $(STAMP)
	$(BIN)/python -m pytest -q -rs tests/web

peer-numbers: $(STAMP) model
	$(BIN)/python bench/peer_numbers.py

record-pages: $(STAMP) model
	$(BIN)/python bench/record_pages.py

parity: $(STAMP) model
	$(BIN)/python tests/parity/run_modes.py $(if $(TOKENS),--tokens $(TOKENS))

soak: $(STAMP) model
ifneq ($(WHAT),console)
	$(BIN)/python tests/soak/kills.py --kills $(or $(KILLS),100)
	$(BIN)/python tests/soak/disconnects.py $(or $(REPEATS),50)
	$(BIN)/python tests/soak/overload.py --seconds $(or $(OVERLOAD_S),60) --times $(or $(TIMES),10)
	$(BIN)/python tests/soak/overload.py --seconds $(or $(OVERLOAD_S),60) --times $(or $(TIMES),10) --deadline 6
	$(BIN)/python tests/soak/broker.py --seconds $(or $(BROKER_S),60)
	$(BIN)/python tests/soak/steady.py --minutes $(or $(MINUTES),20)
endif
	$(BIN)/python tests/soak/console_day.py --minutes $(or $(MINUTES),14.4)
	$(BIN)/python tests/soak/console_cuts.py

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "infer-console needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes a minute or two)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[engine,test]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis
