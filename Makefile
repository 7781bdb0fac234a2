# Two commands do everything: `make run` and `make test`.

.PHONY: run test chaos prepare check bench bench-soak bench-push bench-waiting

# Build and serve; the first start makes a database of its own.
run: prepare
	cargo run --release -- serve

# All tests, against a real PostgreSQL that they start themselves.
test:
	@scripts/prepare --tests
	cargo test

# The chaos test at length, about 10 minutes: servers killed, connections frozen and cut. Of a
# failure it prints the seed, for WAYBILL_CHAOS_SEED=… make chaos.
chaos:
	@scripts/prepare --tests
	WAYBILL_CHAOS_ROUNDS=$${WAYBILL_CHAOS_ROUNDS:-100} cargo test --test waybill chaos:: -- --nocapture

# Formatting, lints, documentation and dependencies, as CI sees them.
check:
	scripts/deny
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

prepare:
	@scripts/prepare

# Waybill beside raw SQL and its peers, on this machine: bench/RESULTS.md. About 15 minutes.
bench: prepare
	cargo build --profile dist
	bench/prepare
	bench/compare
	bench/report

# Ten minutes at 800 lives per second under a held snapshot; the report takes it in.
bench-soak: prepare
	cargo build --profile dist
	bench/soak
	if [ -e bench/results.json ]; then bench/report; fi

# Events pushed to a receiver on this machine, about 3 minutes; the report takes it in.
bench-push: prepare
	cargo build --profile dist
	bench/push
	if [ -e bench/results.json ]; then bench/report; fi

# Workers that wait beside workers that do not, about 10 minutes; the report takes it in.
bench-waiting: prepare
	cargo build --profile dist
	bench/waiting
	if [ -e bench/results.json ]; then bench/report; fi
