# Two commands do everything: `make run` and `make test`.

PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: install dist run test chaos fuzz prepare check bench bench-soak bench-push bench-waiting bench-retention bench-settings bench-tenants bench-keys

# Builds and serves. The first start creates an embedded database.
run: prepare
	cargo run --release -- serve

# Builds the program and installs it, with its unit for systemd, its manual pages and completions. PREFIX=/usr/local and
# DESTDIR= say where.
install:
	cargo build --profile dist --features otlp
	scripts/install --binary target/dist/waybill --root "$(DESTDIR)" --prefix "$(PREFIX)"

# Builds what is distributed: the stripped program and a Debian package, both in target/dist.
dist:
	cargo build --profile dist --features otlp
	scripts/deb --binary target/dist/waybill --output target/dist

# Runs all tests against a real PostgreSQL, which the tests start. With traces; plain `cargo test` leaves theirs out.
test:
	@scripts/prepare --tests
	cargo test --features otlp

# Runs the long chaos test, about 10 minutes: it kills servers, and freezes and cuts connections.
# On failure it prints the seed, for WAYBILL_CHAOS_SEED=… make chaos.
chaos:
	@scripts/prepare --tests
	WAYBILL_CHAOS_ROUNDS=$${WAYBILL_CHAOS_ROUNDS:-100} cargo test --test waybill chaos:: -- --nocapture

# Fuzzes a server by openapi.yaml, about 5 minutes. WAYBILL_FUZZ_SECONDS=… changes that.
fuzz: prepare
	scripts/fuzz

# Checks formatting, lints, documentation and dependencies, as CI does: with traces, and the
# program without them.
check:
	scripts/deny
	cargo fmt --check
	cargo clippy --all-targets --features otlp -- -D warnings
	cargo clippy -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --features otlp --no-deps --document-private-items

prepare:
	@scripts/prepare

# Compares Waybill with raw SQL and its peers on this machine, about 15 minutes. Writes bench/RESULTS.md.
bench: prepare
	cargo build --profile dist
	bench/prepare
	bench/compare
	bench/report

# Runs 800 event lives per second for 10 minutes while a snapshot is held open. Updates the report.
bench-soak: prepare
	cargo build --profile dist
	bench/soak
	if [ -e bench/results.json ]; then bench/report; fi

# Measures pushes to a receiver on this machine, about 3 minutes. Updates the report.
bench-push: prepare
	cargo build --profile dist
	bench/push
	if [ -e bench/results.json ]; then bench/report; fi

# Compares waiting workers with polling workers, about 10 minutes. Updates the report.
bench-waiting: prepare
	cargo build --profile dist
	bench/waiting
	if [ -e bench/results.json ]; then bench/report; fi

# Compares one namespace with many, and a quiet one with and without a loud one, about 4 minutes.
bench-tenants: prepare
	cargo build --profile dist
	bench/tenants

# Compares publishing with and without idempotency keys, and with and without API keys, about 5 minutes.
bench-keys: prepare
	cargo build --profile dist
	bench/keys

# Lives at full speed, with and without a retention of one minute, about 25 minutes. Updates the report.
bench-retention: prepare
	cargo build --profile dist
	bench/retention
	if [ -e bench/results.json ]; then bench/report; fi

# Compares settings of PostgreSQL, about 4 minutes. Updates the report.
bench-settings: prepare
	cargo build --profile dist
	bench/settings
	if [ -e bench/results.json ]; then bench/report; fi
