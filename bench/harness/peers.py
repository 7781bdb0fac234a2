"""The peers: each is a folder with a driver that implements the contract of bench/README.md."""

import json
import os

from .cluster import ROOT
from .processes import Failed, run

FOLDER = ROOT / "bench/peers"
CALLERS = 16
BATCH_CALLERS = 4
BATCH = 100
PICKUP_SAMPLES = 200


class Peer:
    """One system to compare Waybill with, as its folder describes it."""

    def __init__(self, folder):
        self.folder, self.name = folder, folder.name
        self.about = json.loads((folder / "peer.json").read_text())

    def is_installed(self):
        """Returns whether bench/prepare installed it."""
        return (self.folder / ".installed").exists()

    def drive(self, workload, url, timeout, **options):
        """Runs the driver for one workload and returns the printed figures."""
        program, *rest = self.about["command"]
        pairs = [f"{name}={value}" for name, value in options.items()]
        printed = run([self.folder / program, *rest, workload, url, *pairs], timeout, cwd=self.folder,
                      env={"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/")})
        lines = printed.strip().splitlines()
        if not lines:
            raise Failed(f"{self.name}'s driver printed nothing for {workload}")
        figures = json.loads(lines[-1])
        if "events" in figures:
            if not figures["events"] or not figures["seconds"]:
                raise Failed(f"{self.name} did nothing in {workload}: {figures}")
            figures["events_per_second"] = figures["events"] / figures["seconds"]
        return figures


def all_peers():
    """Returns the peers of all folders."""
    return [Peer(path.parent) for path in sorted(FOLDER.glob("*/peer.json"))]


def measure(peer, cluster, options):
    """Yields the name of each workload with its figures, or with the reason why there are none."""
    seconds = options.peer_seconds
    plan = [
        ("publish-one", publish_one, {}),
        ("publish-batch", publish_batch, {}),
        ("drain", drain, {"foreign": 0}),
        ("pickup", pickup, {}),
    ]
    for variant in peer.about.get("variants", {}):
        plan.append((variant, publish_one, {"notify": "on"}))
    if options.peers_foreign:
        plan.append(("drain-foreign", drain, {"foreign": options.foreign}))
    for name, workload, more in plan:
        try:
            yield name, workload(peer, cluster, seconds, **more)
        except Failed as failure:
            yield name, {"failed": str(failure)}


def fresh(peer, cluster, **options):
    """Creates a new database for a workload, with only the peer's schema.

    The schema is installed once and copied, because some migrations take longer than a workload.
    """
    template = "_".join(["template", peer.name, *options])
    if not cluster.exists(template):
        cluster.create(template)
        peer.drive("setup", cluster.url(template), 120, **options)
    database = f"peer_{peer.name}"
    cluster.create(database, template)
    return database, cluster.url(database)


def publish_one(peer, cluster, seconds, **options):
    """Publishes one job per call with `CALLERS` callers; each job is durable before the caller's next."""
    database, url = fresh(peer, cluster, **options)
    cluster.settle(database)
    return peer.drive("publish-one", url, seconds + 60, callers=CALLERS, seconds=seconds)


def publish_batch(peer, cluster, seconds):
    """Publishes 100 jobs per call."""
    database, url = fresh(peer, cluster)
    cluster.settle(database)
    return peer.drive("publish-batch", url, seconds + 60, callers=BATCH_CALLERS, batch=BATCH, seconds=seconds)


def drain(peer, cluster, seconds, foreign):
    """Drains jobs that were published before, with handlers that do nothing."""
    database, url = fresh(peer, cluster)
    jobs = peer.about["prefill_per_second"] * seconds
    if foreign:
        peer.drive("fill", url, 3600, jobs=foreign, queue="foreign")
    peer.drive("fill", url, 600, jobs=jobs)
    cluster.settle(database)
    return peer.drive("drain", url, seconds + 120, jobs=jobs, seconds=seconds)


def pickup(peer, cluster, seconds):
    """Measures the pickup of one idle worker, one job at a time."""
    # Enough time for the samples of a peer that takes 20 ms for each.
    limit = max(10, seconds)
    database, url = fresh(peer, cluster, notify="on")
    cluster.settle(database)
    return peer.drive("pickup", url, limit + 60, samples=PICKUP_SAMPLES, seconds=limit)
