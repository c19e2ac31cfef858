# Windlass: what a developer does here. Bare `make` lists it.
.DEFAULT_GOAL := help
CARGO ?= cargo
# The oldest major that we support, and the newest that is released.
POSTGRES ?= 13.23.0-beta.16 18.4.0-beta.17

.PHONY: help check quick test test-deep test-second-postgres bless bench docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

check: ## formatting, lints and (with cargo-deny) what we depend on, warnings as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@if $(CARGO) deny --version > /dev/null 2>&1; then $(CARGO) deny --locked check; \
	else echo "cargo-deny is not installed: licences, advisories and sources of crates were not checked"; fi

quick: ## the kernel, and the stories and rules of a store on SQLite in memory: under a minute after a change of one file
	$(CARGO) test --locked --quiet -p windlass-kernel
	$(CARGO) test --locked --quiet -p windlass-store --test conformance -- ::memory

test: check ## everything that CI runs
	scripts/postgres
	scripts/network
	scripts/promtool
	scripts/faketime
	$(CARGO) test --workspace --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

test-deep: ## what takes longer: many more random histories
	scripts/postgres
	scripts/network
	scripts/promtool
	scripts/faketime
	previous=$$(CARGO=$(CARGO) scripts/previous-version) && \
		WINDLASS_PREVIOUS=$$previous PROPTEST_CASES=20000 WINDLASS_DEEP=1 \
		$(CARGO) test --workspace --locked --release
	$(CARGO) build --locked --release && scripts/fuzz-http "$${CARGO_TARGET_DIR:-target}/release/windlass"
	$(MAKE) test-second-postgres

test-second-postgres: ## the store on other majors of PostgreSQL than the installed one
	scripts/postgres
	scripts/network
	CARGO=$(CARGO) scripts/second-postgres $(POSTGRES)

bless: ## write the generated documents and the schema anew
	WINDLASS_BLESS=1 $(CARGO) test --locked -p windlass-server --bins --test docs --test http --test cli --test guide
	WINDLASS_BLESS=1 $(CARGO) test --locked -p windlass-store --test schema --test golden
	WINDLASS_BLESS=1 $(CARGO) test --locked -p windlass-store --test postgres schema

bench: ## measure this machine, beside what its database can do
	$(CARGO) run --release --locked --quiet -- bench enqueue --runs 3 --yardstick
	$(CARGO) run --release --locked --quiet -- bench enqueue-bulk --runs 3 --yardstick
	$(CARGO) run --release --locked --quiet -- bench drain --runs 3 --yardstick
	$(CARGO) run --release --locked --quiet -- bench latency --runs 3

docs: ## build the API documentation
	$(CARGO) doc --workspace --no-deps --locked

clean: ## remove what was built
	$(CARGO) clean
