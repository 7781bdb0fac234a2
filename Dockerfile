# syntax=docker/dockerfile:1
# An image of Waybill with PostgreSQL's programs, for the embedded database and for backups. docs/deploying.md says how to
# run it.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY migrations migrations
COPY openapi.yaml ./
COPY src src
# The manifest names the tests, and Cargo wants the file to exist.
COPY tests/main.rs tests/main.rs
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist --features otlp --bin waybill && install -D target/dist/waybill /out/waybill

FROM debian:bookworm-slim
# Debian would make and start a cluster of its own; Waybill needs only the programs.
RUN mkdir -p /etc/postgresql-common && \
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf && \
    apt-get update -q && \
    DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends ca-certificates postgresql-15 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --system --uid 10001 --home-dir /var/lib/waybill --shell /usr/sbin/nologin waybill && \
    install -d -o waybill -g waybill -m 0700 /var/lib/waybill
COPY --from=build /out/waybill /usr/bin/waybill
COPY deploy/docker/entrypoint /usr/bin/waybill-entrypoint
COPY deploy/docker/healthcheck /usr/bin/waybill-healthcheck

ENV WAYBILL_BIND=0.0.0.0:8080 WAYBILL_DATA_DIR=/var/lib/waybill
USER waybill
VOLUME /var/lib/waybill
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/waybill-healthcheck"]
ENTRYPOINT ["/usr/bin/waybill-entrypoint"]
CMD ["serve"]
