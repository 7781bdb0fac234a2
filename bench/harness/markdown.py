"""Creates bench/RESULTS.md."""

from . import targets

PEER_COLUMNS = [
    ("publish-one", "events_per_second", "publish one by one, 16 callers"),
    ("publish-batch", "events_per_second", "publish 100 per call"),
    ("drain", "events_per_second", "drain"),
    ("pickup", "p50_ms", "pickup p50"),
    ("pickup", "p99_ms", "pickup p99"),
]
OURS = {"publish-one": "publish-16", "publish-batch": "batch-publish-100"}


def table(head, body):
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def spread(values, key):
    """Formats the median, with the lowest and the highest round in brackets."""
    if not values:
        return "not measured"
    unit, digits = (" ms", 2) if key.endswith("_ms") else (" /s", 0)
    middle = targets.median(values)
    return f"{middle:,.{digits}f}{unit} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def steal_text(results):
    """Returns the steal over all workloads of all systems."""
    sides = (side for one in results["rounds"] for side in [one["waybill"], one["pgbench"], *one["peers"].values()])
    shares = [figures["steal_percent"] for side in sides for figures in side.values() if "steal_percent" in figures]
    return f"{targets.median(shares)} % (median of all workloads), at most {max(shares)} %" if shares else "not recorded"


def conditions(results):
    """Describes the machine and the versions."""
    at = results["conditions"]
    load = " / ".join(f"{value:.2f}" for value in at["load_average_before"])
    body = [
        ["date", at["date"]],
        ["processor", f"{at['cpu']}, {at['cores']} cores, shared by PostgreSQL, the measured system and its load generator"],
        ["memory", f"{at['memory_gib']} GiB"],
        ["system", f"{at['system']}, {at['kernel']}"],
        ["load average before", load],
        ["processor time taken by other guests of the host (steal)", steal_text(results)],
        ["PostgreSQL", f"{at['postgresql']}, one cluster for all systems, over its Unix socket"],
        ["settings of PostgreSQL", ", ".join(f"`{name}={value}`" for name, value in sorted(at["postgresql_settings"].items()))],
        ["Waybill", at["waybill"]],
        ["peers", ", ".join(f"{name} {version}" for name, version in at["peers"].items())],
        ["rounds", f"{len(results['rounds'])}, each with all systems; {results['options']['seconds']} s per workload, "
                   f"{results['options']['peer_seconds']} s per workload of a peer"],
    ]
    return table(["condition", "value"], body)


def target_table(results, soak):
    """Lists the targets and the results."""
    body = [[row["name"], row["ours"], row["theirs"], row["value"] or "–", row["least"], row["aim"], row["reached"]]
            for row in targets.rows(results, soak)]
    return table(["workload", "Waybill", "against", "figure", "at least", "aim", "result"], body)


def peer_table(measured):
    """Lists the figures of all systems, Waybill first."""
    body = []
    for side in ["waybill", *measured.peers]:
        cells = [f"**{side}**" if side == "waybill" else side]
        for workload, key, _ in PEER_COLUMNS:
            workload = OURS.get(workload, workload) if side == "waybill" else workload
            cells.append(spread(measured.values(side, workload, key), key))
        body.append(cells)
    return table(["system", *(title for _, _, title in PEER_COLUMNS)], body)


def more_table(measured):
    """Lists all other figures of all systems."""
    shown = {(side, workload) for side in ["waybill", *measured.peers] for workload, _, _ in PEER_COLUMNS}
    shown |= {("waybill", workload) for workload in OURS.values()}
    body = []
    for side in ["waybill", "pgbench", *measured.peers]:
        of_side = [one["peers"].get(side, {}) if side in measured.peers else one.get(side, {})
                   for one in measured.rounds]
        for workload in dict.fromkeys(name for figures in of_side for name in figures if name != "failed"):
            values = measured.values(side, workload)
            if values and (side, workload) not in shown:
                latency = measured.values(side, workload, "p50_ms")
                body.append([side, workload, spread(values, "events_per_second"),
                             spread(latency, "p50_ms") if latency else "–"])
    return table(["system", "workload", "events", "p50"], body)


def failures(results):
    """Lists what could not be measured and why, because a missing line could be misread."""
    lines = []
    for number, one in enumerate(results["rounds"], 1):
        for side, figures in [("waybill", one["waybill"]), ("pgbench", one["pgbench"]), *one["peers"].items()]:
            reasons = [("", figures["failed"])] if "failed" in figures else []
            reasons += [(f", {name}", result["failed"]) for name, result in figures.items()
                        if isinstance(result, dict) and "failed" in result]
            lines += [f"- round {number}, {side}{name}: {reason}" for name, reason in reasons]
    return "\n## Not measured\n\n" + "\n".join(lines) + "\n" if lines else ""


def about_peers(peers, measured):
    """Lists the settings of each peer with their reasons, and what its figure does not include."""
    parts = []
    for peer in peers:
        if peer.name in measured.peers:
            settings = table(["setting", "why"], peer.about["settings"])
            limits = "\n".join(f"- {limit}" for limit in peer.about["limits"])
            parts.append(f"### {peer.name} {peer.about['version']} ({peer.about['language']})\n\n"
                         f"{settings}\nNotes for the comparison:\n\n{limits}\n")
    return "\n".join(parts)


def soak_part(soak):
    """Lists the minutes of the soak run."""
    if not soak:
        return ""
    body = [[number, f"{minute['events_per_second']:.1f} /s", f"{minute['p50_ms']:.2f} ms", f"{minute['p99_ms']:.2f} ms",
             f"{minute['p99_ratio']:.2f} ×"] for number, minute in enumerate(soak["minutes"], 1)]
    return (f"\n## {soak['seconds'] / 60:g} minutes at {soak['rate']} lives per second, with a held snapshot\n\n"
            "A transaction that is opened before the run and stays open prevents PostgreSQL from removing any dead row. "
            "Latency is measured from the time at which an event was due to be published to the response to its completion. "
            f"Measured on {soak['date']}.\n\n"
            + table(["interval", "lives", "p50", "p99", "p99 relative to the first"], body))


PUSH_ROWS = [
    ("deliveries per second, fan-out 1, from a backlog, 100 concurrent requests", "deliveries_per_second_100", "{:,.0f}", "1,500"),
    ("the same, 16 concurrent requests (the default)", "deliveries_per_second_16", "{:,.0f}", "1,500"),
    ("published to arrived, p50", "arrival_p50_ms", "{:.1f} ms", ""),
    ("published to arrived, p95", "arrival_p95_ms", "{:.1f} ms", "100 ms"),
    ("published to arrived, p99", "arrival_p99_ms", "{:.1f} ms", ""),
    ("rate next to an endpoint that never responds, relative to the rate alone", "beside_a_hanging_endpoint", "{:.2f}", "0.9"),
    ("memory of the server with 1,000 requests in flight", "mb_with_a_thousand_under_way", "{:.0f} MB", "200 MB"),
    ("statements per delivered event, published one by one at that rate", "statements_per_event", "{:.2f}", "at most 6"),
    ("the same, from a backlog", "statements_per_event_of_a_backlog", "{:.2f}", "under 1"),
]


def push_part(push):
    """Lists the figures of pushes."""
    if not push:
        return ""
    body = [[name, form.format(push["summary"][key]), asked or "–"] for name, key, form, asked in PUSH_ROWS]
    stolen = ", ".join(f"{one['steal_percent']} %" for one in push["rounds"])
    return (f"\n## Pushes to a receiver on the same machine\n\n"
            f"Backlogs of {push['backlog']:,} events, and {push['rate']} events per second published one by one; server, "
            f"PostgreSQL, load generator and receiver share the same {push['conditions']['cores']} cores; medians of "
            f"{len(push['rounds'])} rounds. Measured on {push['conditions']['date']}; other guests of the host took {stolen} of "
            f"the processor time.\n\n" + table(["workload", "measured", "target"], body))


def waiting_part(waiting):
    """Lists the figures of waiting and polling workers."""
    if not waiting:
        return ""
    def asked(name):
        if name.startswith("drain"):
            return "at least 0.95"
        return {"steady_p99_ms": "below 100"}.get(name, "–")
    body = [[name.replace("_", " "), f"{value:.2f}", asked(name)] for name, value in waiting["summary"].items()]
    stolen = ", ".join(f"{one['steal_percent']} %" for one in waiting["rounds"])
    return ("\n## Waiting workers\n\n"
            "Backlogs drained one by one: the rate with `wait_seconds=30` divided by the rate without it, measured one after the other. Then "
            f"{waiting['rate']:,} events per second from 32 publishers to 32 waiting workers; latency is measured from the time "
            f"at which an event was due to the response to its completion. Medians of {len(waiting['rounds'])} rounds on "
            f"{waiting['conditions']['cores']} cores. Measured on {waiting['conditions']['date']}; other guests of the host took "
            f"{stolen} of the processor time.\n\n" + table(["figure", "measured", "target"], body) + "\n")


RETENTION_ROWS = [
    ("lives per second, nothing removed", "lives_per_second_without", "{:,.0f}", ""),
    ("lives per second, with removal", "lives_per_second_with", "{:,.0f}", ""),
    ("the second relative to the first", "ratio", "{:.2f}", "at least 0.8"),
    ("size of tables and indexes in the second half of the settled time, relative to the first", "growth_when_settled",
     "{:.2f}", "about 1"),
    ("furthest behind, in seconds", "worst_lag_seconds", "{:.1f}", ""),
    ("longest step", "longest_step_ms", "{:.1f} ms", "below 50 ms"),
    ("mean step", "mean_step_ms", "{:.1f} ms", ""),
]


def retention_part(retention):
    """Lists the figures of the removal of events."""
    if not retention:
        return ""
    summary = retention["summary"]
    body = [[name, "–" if summary[key] is None else form.format(summary[key]), asked or "–"]
            for name, key, form, asked in RETENTION_ROWS]
    return (f"\n## Removal of events\n\n`{retention['workload']}` at full speed, for {retention['seconds'] / 60:g} minutes with events "
            f"kept for {retention['retention_seconds']} seconds, and for {retention['without']['seconds'] / 60:.2g} minutes with "
            f"events kept for ever, each on a new database. "
            f"{summary['removed']:,.0f} events were removed. Measured on {retention['date']}; other guests of the host took "
            f"{retention['steal_percent']} % of the processor time.\n\n" + table(["figure", "measured", "target"], body))


LIST_ROWS = [("events per second", "rate"), ("processor time of the server and of PostgreSQL per event", "microseconds")]


def lists_part(lists):
    """Lists what the indexes that serve only lists cost publishers."""
    if not lists:
        return ""
    def ratios(figure):
        return [one["with_lists"][figure] / one["without_lists"][figure] for one in lists["rounds"]]
    body = [[name, f"{lists['summary'][figure]:.3f} ({min(ratios(figure)):.2f}–{max(ratios(figure)):.2f})",
             "at least 0.95" if figure == "rate" else "–"] for name, figure in LIST_ROWS]
    verdict = "reached" if lists["summary"]["rate"] >= 0.95 else "not reached"
    return (f"\n## The price of lists\n\nPublishing at 64 connections with the indexes that serve only lists, relative to "
            f"publishing without them, in turn on two databases: medians of {len(lists['rounds'])} rounds, with the lowest and "
            f"the highest. Measured on {lists['conditions']['date']}. The target is {verdict}.\n\n"
            + table(["figure", "measured", "target"], body))


def settings_part(settings):
    """Lists the settings of PostgreSQL that were tried."""
    if not settings:
        return ""
    workloads = list(next(iter(settings["summary"].values())))
    body = [[f"`{variant}`" if "=" in variant else variant, *(f"{ratios[name]:.2f}" for name in workloads)]
            for variant, ratios in settings["summary"].items()]
    return (f"\n## Settings of PostgreSQL\n\nEvents per second relative to the settings of the embedded PostgreSQL, all in "
            f"turn on one server: medians of {len(settings['rounds'])} rounds of {settings['seconds']} s each. The spread of "
            f"the same setting between rounds is about 10 %. Measured on {settings['date']}; other guests of the host took "
            f"{settings['steal_percent']} % of the processor time.\n\n" + table(["setting", *workloads], body))


def profile_part(profile):
    """Shows where the processor time goes."""
    if not profile:
        return ""
    body = [[name, f"{one['events_per_second']:,.0f} /s", f"{one['server']:.0f} µs", f"{one['postgresql']:.0f} µs",
             f"{one['load']:.0f} µs", f"{100 * one['idle'] / one['all']:.0f} %"]
            for name, one in profile["summary"].items()]
    flush = f" A flush of its log takes {profile['flush_us']:,.0f} µs." if profile["flush_us"] else ""
    return (f"\n## Where the time goes\n\nProcessor time per event of the server, of all processes of PostgreSQL and of the "
            f"load generator, and the share of the machine that was idle: medians of "
            f"{len(next(iter(profile['rounds'].values())))} rounds.{flush} Measured on {profile['date']}.\n\n"
            + table(["workload", "rate", "server", "PostgreSQL", "load", "idle"], body)
            + "\nAt most two batches run at once, and each waits for its flush, so a part of the machine is idle. The "
            "decisions on [small batches](../docs/decisions/0046-small-batches-wait-for-each-other.md), "
            "[warm connections](../docs/decisions/0045-warm-connections.md), [claims]"
            "(../docs/decisions/0044-a-claim-from-one-queue.md), [lanes](../docs/decisions/0038-lanes-keep-their-transactions.md) "
            "and [the schema](../docs/decisions/0022-one-schema-for-the-first-release.md) say what was tried, and what the rest "
            "of the time is for.\n")


def page(results, parts, peers):
    """Returns the whole page."""
    measured = targets.Measured(results)
    soak = parts["soak"]
    more = "".join((soak_part(soak), push_part(parts["push"]), waiting_part(parts["waiting"]),
                    retention_part(parts["retention"]), lists_part(parts["lists"]), profile_part(parts["profile"]),
                    settings_part(parts["settings"])))
    return f"""# Comparison

Written by `bench/report` from `bench/results.json`; do not edit. How it is measured: [README.md](README.md).

![Publish one by one, whole life, pickup](results.svg)

## Conditions

{conditions(results)}
## Targets

Medians of the rounds. A ratio is the median of the ratios of the rounds, each of two figures of the same round.

{target_table(results, soak)}
“Whole life” against a peer is N events divided by the time to publish N and the time to drain N, on both sides.

## Waybill and the peers

Medians, and in brackets the lowest and highest round. Callers of Waybill use HTTP to a server; the peers are
libraries that use PostgreSQL from the caller's process. Waybill checks the lease of every completion
and writes to its event log in the same transaction; the section on each peer describes what it does.

{peer_table(measured)}
## All other figures

{more_table(measured)}{failures(results)}{more}
## Settings and limits of the peers

Common to all: a payload of 120 bytes of JSON, `synchronous_commit=on`, handlers that do nothing.

{about_peers(peers, measured)}
## How to repeat it

```sh
make bench        # builds, installs the peers, measures, and writes this page
make bench-soak   # ten minutes at 800 lives per second
make bench-push   # events pushed to a receiver, about 3 minutes
make bench-waiting   # waiting workers compared with polling workers, about 10 minutes
make bench-retention   # lives at full speed with a retention of one minute, about 25 minutes
make bench-settings   # settings of PostgreSQL that may make commits cheaper, about 4 minutes
```
"""
