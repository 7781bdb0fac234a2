# Two commands do everything: `make run` and `make test`.

.PHONY: run test prepare check

# Build and serve; the first start makes a database of its own.
run: prepare
	cargo run --release -- serve

# All tests, against a real PostgreSQL that they start themselves.
test: prepare
	cargo test

# Formatting, lints and documentation, as CI sees them.
check:
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

prepare:
	@scripts/prepare
