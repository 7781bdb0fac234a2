"""The raw SQL measurements: pgbench with hand-written SQL, without a server in between."""

import re

from .cluster import ROOT
from .processes import run

SCRIPTS = ROOT / "bench/sql"
DATABASE = "rawsql"
# A JSON document of 120 bytes, the same for all systems.
PAYLOAD = '{"data":"' + "x" * 109 + '"}'

# name, script, clients, query that counts the finished events
WORKLOADS = [
    ("insert-16", "publish.sql", 16, "select count(*) from naive_events"),
    ("life-16", "life.sql", 16, "select count(*) from naive_events where status = 'COMPLETED'"),
    ("batch-life-2", "batch_life.sql", 2, "select count(*) from deliveries where status = 'C'"),
]


def measure(cluster, seconds):
    """Yields the name and the figures of each workload. Finished events are counted in the tables."""
    for name, script, clients, count in WORKLOADS:
        cluster.create(DATABASE)
        schema = (SCRIPTS / "schema.sql").read_text()
        cluster.sql(DATABASE, schema)
        cluster.settle(DATABASE)
        told = run(
            [cluster.binaries / "pgbench", "-n", "-M", "prepared", "-c", clients, "-j", 1, "-T", seconds,
             "-D", f"payload={PAYLOAD}", "-f", SCRIPTS / script,
             "-h", cluster.folder, "-U", "bench", DATABASE],
            seconds + 60,
        )
        events = int(cluster.sql(DATABASE, count))
        # pgbench reports transactions (scripts) and their rate; their quotient is the measured time.
        scripts = int(re.search(r"actually processed: (\d+)", told).group(1))
        rate = float(re.search(r"tps = ([\d.]+) \(without", told).group(1))
        elapsed = scripts / rate
        yield name, {"events": events, "seconds": elapsed, "events_per_second": events / elapsed,
                     "clients": clients, "scripts": scripts}
