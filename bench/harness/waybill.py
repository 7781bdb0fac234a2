"""Measures Waybill: the server as a child process, and `waybill bench` as its load."""

import json
import os
import re
import select
import subprocess
import threading

from .processes import Failed, children_of, processor_seconds, run, stop

EMPTY, BEHIND_FOREIGN = "waybill", "waybill_foreign"


class Server:
    """A Waybill server on one database that runs inside the `with` block."""

    def __init__(self, binary, database_url, flags=()):
        self.binary, self.database_url, self.flags = binary, database_url, flags

    def __enter__(self):
        environment = {**os.environ, "DATABASE_URL": self.database_url, "WAYBILL_LOG": "warn"}
        self.child = subprocess.Popen(
            [self.binary, "serve", "--bind", "127.0.0.1:0", *self.flags], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        try:
            ready, _, _ = select.select([self.child.stdout], [], [], 60)
            line = self.child.stdout.readline().decode() if ready else ""
            found = re.search(r"http://\S+", line)
            if not found:
                raise Failed(f"the server did not say where it listens, but: {line!r}")
            self.url = found.group(0)
        except BaseException:
            stop(self.child)
            raise
        return self

    def __exit__(self, *_):
        stop(self.child)
        self.child.stdout.close()

    def bench(self, workload, seconds, connections, **options):
        """Runs `waybill bench` and returns its report."""
        command = [self.binary, "bench", "--json", "--url", self.url, "--workload", workload,
                   "--seconds", seconds, "--connections", connections]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
        return json.loads(run(command, seconds + 900))

    def timed_bench(self, cluster, workload, seconds, connections, **options):
        """Runs `waybill bench`. Returns the rate, and the processor time of the server and of PostgreSQL per event in
        microseconds."""
        processes = [self.child.pid, *children_of(cluster.server.pid)]
        before = sum(map(processor_seconds, processes))
        report = self.bench(workload, seconds, connections, **options)
        spent = sum(map(processor_seconds, processes)) - before
        return report["events_per_second"], 1e6 * spent / max(1, report["events"])

    def memory_kb(self, name):
        """Returns VmRSS or VmHWM of the server's process, in KiB."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return int(re.search(rf"{name}:\s+(\d+)", status.read()).group(1))


class MemoryWatch:
    """Samples the server's resident memory while a load runs, and keeps the maximum."""

    def __init__(self, server):
        self.server, self.highest, self.over = server, 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self.over.wait(0.1):
            self.highest = max(self.highest, self.server.memory_kb("VmRSS"))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def fill_foreign(binary, cluster, foreign):
    """Publishes the events of another tag once, into a separate database."""
    cluster.create(BEHIND_FOREIGN)
    with Server(binary, cluster.url(BEHIND_FOREIGN)) as server:
        server.bench("drain", 1, 1, foreign=foreign, prefill=1)
    cluster.settle(BEHIND_FOREIGN)


def measure(binary, cluster, options):
    """Yields the name and the figures of each workload, in the order of the runs."""
    plan = [
        ("http-64", "http", 64, {}),
        ("publish-64", "publish", 64, {}),
        ("publish-16", "publish", 16, {}),
        ("life-64", "life", 64, {"wait_seconds": 5}),
        ("batch-publish-100", "batch-publish", options.batch_connections, {"batch": 100}),
        ("batch-life-100", "batch-life", options.batch_connections, {"batch": 100}),
        ("pickup", "pickup", 2, {}),
    ]
    for name, workload, connections, more in plan:
        # A new database for each workload, as for the peers, which avoids vacuum of the previous one.
        cluster.create(EMPTY)
        with Server(binary, cluster.url(EMPTY)) as server:
            # The peers' connections are also open before the measurement starts.
            server.bench(workload, 1, connections, **more)
            cluster.settle(EMPTY)
            with MemoryWatch(server) as watch:
                figures = server.bench(workload, options.seconds, connections, **more)
            figures["highest_rss_kb"] = watch.highest
            figures["server_hwm_kb"] = server.memory_kb("VmHWM")
            yield name, figures
    # The two databases differ only in the events of another tag.
    cluster.create(EMPTY)
    yield from queue_depth(binary, cluster, options, EMPTY, "")
    yield from queue_depth(binary, cluster, options, BEHIND_FOREIGN, "-foreign")
    yield from economy(binary, cluster, options)


def queue_depth(binary, cluster, options, database, suffix):
    """Measures drains and single claims, with or without events of another tag."""
    with Server(binary, cluster.url(database)) as server:
        # A first drain, which is not measured, gives the planner statistics, as every queue in use has
        # them. The peers' jobs are analysed as well.
        server.bench("drain", options.seconds * 6, options.drain_connections,
                     wait_seconds=30, batch=options.drain_batch, prefill=5_000)
        cluster.settle(database)
        yield f"drain{suffix}", server.bench(
            "drain", options.seconds * 6, options.drain_connections,
            wait_seconds=30, batch=options.drain_batch, prefill=options.drain_events)
        cluster.settle(database)
        # One connection, one event at a time: measures a claim and its completion.
        yield f"claim-one{suffix}", server.bench("drain", max(1, options.seconds // 2), 1, batch=1,
                                                 prefill=options.seconds * 2_000)


def economy(binary, cluster, options):
    """Counts statements per event and bytes of WAL per life, in short separate runs because counting costs time."""
    seconds = max(1, options.seconds // 2)
    with Server(binary, cluster.url(EMPTY)) as server:
        for workload in ("publish", "life"):
            with cluster.counting():
                figures = server.bench(workload, seconds, 64)
                calls = int(cluster.counted(EMPTY))
            yield f"statements-{workload}-64", {
                "events": figures["events"], "statements": calls,
                "statements_per_event": calls / max(1, figures["events"])}
        yield "postgres-time-life-20", postgres_time(server, cluster, seconds, "batch-life", 20)
        yield "postgres-time-publish-100", postgres_time(server, cluster, seconds, "batch-publish", 100)
        cluster.set("full_page_writes", "off")
        try:
            cluster.settle(EMPTY)
            before = cluster.sql("postgres", "select pg_current_wal_insert_lsn()")
            figures = server.bench("life", seconds, 64)
            written = int(cluster.sql("postgres", f"select (pg_current_wal_insert_lsn() - '{before}')::bigint"))
        finally:
            cluster.set("full_page_writes", "on")
        yield "wal-life-64", {"events": figures["events"], "wal_bytes": written,
                              "wal_bytes_per_event": written / max(1, figures["events"])}


def postgres_time(server, cluster, seconds, workload, batch):
    """Adds up how long statements took, for batches by one caller."""
    server.bench(workload, 1, 1, batch=batch)
    with cluster.counting():
        figures = server.bench(workload, seconds, 1, batch=batch)
        spent = cluster.counted(EMPTY, "sum(total_exec_time)")
    return {"events": figures["events"], "microseconds_per_event": 1000 * spent / max(1, figures["events"])}
