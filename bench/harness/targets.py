"""The targets: the compared figures, the required ratios, and whether they were reached."""

import os
from statistics import median

# The processors that all sides share.
CORES = os.cpu_count()


def together(publish, drain):
    """Returns events per second when all events are published first and then drained."""
    return 1 / (1 / publish + 1 / drain)


class Measured:
    """The rounds of a run, with medians and spreads. Failed measurements are absent."""

    def __init__(self, results):
        self.rounds = results.get("rounds", [])
        self.peers = sorted({name for one in self.rounds for name in one["peers"]})

    def by_round(self, side, workload, key="events_per_second"):
        """Returns the value of each round, `None` for a round without one."""
        sides = (one["peers"].get(side, {}) if side in self.peers else one.get(side, {}) for one in self.rounds)
        return [figures[workload].get(key) if workload in figures else None for figures in sides]

    def values(self, side, workload, key="events_per_second"):
        """Returns one value for each round that has one."""
        return [value for value in self.by_round(side, workload, key) if value is not None]

    def middle(self, side, workload, key="events_per_second"):
        """Returns the median, or `None`."""
        values = self.values(side, workload, key)
        return median(values) if values else None

    def life(self, side, publish, drain="drain"):
        """Returns the rate of publishing all and then draining all, of each round."""
        both = zip(self.by_round(side, publish), self.by_round(side, drain))
        return [together(*pair) if all(pair) else None for pair in both]

    def best_peer(self, figure, best=max):
        """Returns the best figure of a peer, and the name of the peer."""
        found = [(figure(name), name) for name in self.peers if figure(name) is not None]
        return best(found) if found else (None, "none was measured")

    def fastest_peer(self, rates):
        """Returns the rates of each round of the peer with the highest median, and its name."""
        _, name = self.best_peer(lambda peer: middle_of(rates(peer)))
        return (rates(name), name) if name in self.peers else ([], name)


def middle_of(values):
    """Returns the median of the rounds that have a value, or `None`."""
    found = [value for value in values if value is not None]
    return median(found) if found else None


def ratio_row(name, ours, theirs, against, least, aim):
    """Returns a row for the ratio of two rates, given by round; higher is better. The ratio is the median of those of
    the rounds: a machine may change its speed between two of them."""
    value = middle_of([one / other for one, other in zip(ours, theirs) if one and other])
    ours, theirs = middle_of(ours), middle_of(theirs)
    return {"name": name, "ours": rate_text(ours), "theirs": f"{against}: {rate_text(theirs)}" if theirs else against,
            "value": f"{value:.2f} ×" if value else None, "least": f"{least} ×", "aim": f"{aim} ×",
            "reached": verdict(value, least, aim)}


def bound_row(name, value, unit, least, aim, theirs="", digits=2):
    """Returns a row for a figure with an upper bound; lower is better."""
    text = f"{value:.{digits}f} {unit}".strip() if value is not None else None
    return {"name": name, "ours": text or "not measured", "theirs": theirs, "value": text,
            "least": f"{least} {unit}".strip(), "aim": f"{aim} {unit}".strip(),
            "reached": verdict(None if value is None else -value, -least, -aim)}


def rate_text(value):
    return f"{value:,.0f} /s" if value else "not measured"


def verdict(value, least, aim):
    """Returns whether the target or the minimum was reached."""
    if value is None:
        return "not measured"
    if value >= aim:
        return "reached, and the aim"
    return "reached" if value >= least else "not reached"


def ceilings(measured):
    """Returns what the machine could do in each round if nothing but HTTP and the statements of full batches took time."""
    both = zip(measured.by_round("waybill", "http-64"),
               measured.by_round("waybill", "postgres-time-publish-100", "microseconds_per_event"))
    return [1 / (1 / http + 1e-6 * insert / CORES) if http and insert else None for http, insert in both]


def ceiling_row(publishes, measured):
    """Compares publishing with the ceiling."""
    return ratio_row("publish, one event per request, 64 connections", publishes, ceilings(measured),
                     "the ceiling: HTTP alone, and statements of 100 events on all cores", 0.6, 0.8)


def rows(results, soak):
    """Returns the whole table."""
    measured = Measured(results)
    ours = lambda workload, key="events_per_second": measured.middle("waybill", workload, key)
    rates = lambda workload: measured.by_round("waybill", workload)
    raw = lambda workload: measured.by_round("pgbench", workload)
    table = [
        ceiling_row(rates("publish-64"), measured),
        ratio_row("publish, one event per request, 64 connections", rates("publish-64"), raw("insert-16"),
                  "pgbench, single inserts, 16 clients", 1.5, 2),
        ratio_row("whole life, each step its own request, 64 connections", rates("life-64"), raw("life-16"),
                  "pgbench, naive life, 16 clients", 3.5, 5),
        ratio_row("whole life by batch endpoints, 100 per request", rates("batch-life-100"), raw("batch-life-2"),
                  "pgbench, 100 per statement, 2 clients", 0.7, 0.9),
    ]
    fastest, name = measured.fastest_peer(lambda peer: measured.by_round(peer, "publish-one"))
    table.append(ratio_row("publish one by one, 16 callers", rates("publish-16"), fastest,
                           f"fastest peer ({name})", 5, 6))
    fastest, name = measured.fastest_peer(lambda peer: measured.life(peer, "publish-one"))
    table.append(ratio_row("whole life: published one by one (16 callers), drained at the best setting",
                           measured.life("waybill", "publish-16"), fastest, f"fastest peer ({name})", 2, 4))
    fastest, name = measured.fastest_peer(lambda peer: measured.life(peer, "publish-batch"))
    table.append(ratio_row("whole life: published and drained 100 to 500 at a time",
                           measured.life("waybill", "batch-publish-100"), fastest, f"fastest peer ({name})", 1, 1.2))
    foreign = f"{results['options']['foreign']:,} foreign events"
    table.append(ratio_row(f"drain rate behind {foreign}", rates("drain-foreign"), rates("drain"),
                           "an empty queue", 0.9, 1.0))
    table += pickup_rows(measured, ours)
    alone, behind = ours("claim-one", "p50_ms"), ours("claim-one-foreign", "p50_ms")
    table.append(bound_row(f"claim (and completion) behind {foreign}, p50", behind / alone if alone and behind else None,
                           "×", 1.2, 1.0, f"{behind:.2f} ms; an empty queue: {alone:.2f} ms" if alone and behind else ""))
    table += [soak_row(soak), statements_row(ours)]
    wal = ours("wal-life-64", "wal_bytes_per_event")
    table.append(bound_row("WAL per life, 120-byte payload, without full-page images",
                           wal / 1000 if wal else None, "KB", 1.5, 1.2))
    spent = ours("postgres-time-life-20", "microseconds_per_event")
    table.append(bound_row("PostgreSQL's time per life, 20 per statement", spent, "µs", 80, 65, digits=0))
    memory = ours("life-64", "highest_rss_kb")
    table.append(bound_row("resident memory at 64 busy connections", memory * 1.024 / 1000 if memory else None,
                           "MB", 60, 40, digits=1))
    return table


def pickup_rows(measured, ours):
    """Checks two bounds, and that no peer has a lower median."""
    best, name = measured.best_peer(lambda peer: measured.middle(peer, "pickup", "p50_ms"), min)
    median_row = bound_row("idle pickup, p50", ours("pickup", "p50_ms"), "ms", 2.3, 1.5,
                           f"best peer ({name}): {best:.2f} ms" if best else "")
    if best and ours("pickup", "p50_ms") and ours("pickup", "p50_ms") >= best:
        median_row["reached"] = "not reached: a peer is quicker"
    return [median_row, bound_row("idle pickup, p99", ours("pickup", "p99_ms"), "ms", 8, 5)]


def statements_row(ours):
    """Both workloads must stay below the bound; the table shows the higher one."""
    publish, life = (ours(f"statements-{name}-64", "statements_per_event") for name in ("publish", "life"))
    both = [value for value in (publish, life) if value is not None]
    return bound_row("statements per event at 64 connections", max(both) if both else None, "", 0.3, 0.1,
                     f"publish {publish:.3f}, life {life:.3f}" if len(both) == 2 else "", digits=3)


def soak_row(soak):
    """Checks that every minute keeps the rate, with a p99 of at most 1.5 times the first minute's."""
    name = "steady 800 lives/s with a held snapshot: p99 of the worst minute against the first"
    if not soak:
        return bound_row(name, None, "×", 1.5, 1.0)
    row = bound_row(name, soak["worst_p99_ratio"], "×", 1.5, 1.0,
                    f"slowest minute: {soak['lowest_rate']:.0f} of {soak['rate']} lives/s")
    if soak["lowest_rate"] < 0.99 * soak["rate"]:
        row["reached"] = "not reached: the rate falls"
    return row
