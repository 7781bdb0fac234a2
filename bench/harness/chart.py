"""bench/results.svg: three groups of horizontal bars. Plain SVG without external fonts."""

import re
from xml.sax.saxutils import escape

from .targets import Measured, middle_of

WIDTH, LEFT, RIGHT = 860, 190, 120
BAR, GAP, HEAD = 20, 8, 62
OURS, THEIRS = "#0b6e4f", "#b9c4cf"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif'"


def groups(results):
    """A group of bars: title, note, unit, and for each bar its name, value and colour."""
    measured = Measured(results)
    publish = [("Waybill", measured.middle("waybill", "publish-16"), OURS)]
    life = [("Waybill", middle_of(measured.life("waybill", "publish-16")), OURS)]
    pickup = [("Waybill", measured.middle("waybill", "pickup", "p50_ms"), OURS)]
    for peer in measured.peers:
        publish.append((peer, measured.middle(peer, "publish-one"), THEIRS))
        life.append((peer, middle_of(measured.life(peer, "publish-one")), THEIRS))
        pickup.append((peer, measured.middle(peer, "pickup", "p50_ms"), THEIRS))
    return [
        ("Publish, one by one", "events per second, 16 callers; more is better", "{:,.0f} /s", ordered(publish, True)),
        ("Whole life", "events per second, published one by one, then drained; more is better",
         "{:,.0f} /s", ordered(life, True)),
        ("Pickup", "median milliseconds from publish to an idle worker; less is better",
         "{:,.1f} ms", ordered(pickup, False)),
    ]


def ordered(bars, descending):
    """Sorts the bars, best first, and omits systems without a figure."""
    return sorted((bar for bar in bars if bar[1]), key=lambda bar: bar[1], reverse=descending)


def draw(results):
    """Returns the chart as SVG text."""
    parts, y = [], 20
    for title, note, unit, bars in groups(results):
        parts.append(f"<text x='24' y='{y + 20}' font-size='17' font-weight='600' fill='#1c2733'>{escape(title)}</text>")
        parts.append(f"<text x='24' y='{y + 40}' font-size='12.5' fill='#5a6875'>{escape(note)}</text>")
        y += HEAD - 8
        longest = max((value for _, value, _ in bars), default=1)
        for name, value, colour in bars:
            parts += bar_of(y, name, value, unit, colour, (WIDTH - LEFT - RIGHT) * value / longest)
            y += BAR + GAP
        y += 24
    at = results["conditions"]
    version = re.search(r"\d+(\.\d+)*", at["postgresql"]).group(0)
    foot = f"{at['cpu']}, {at['cores']} cores; PostgreSQL {version}, synchronous_commit=on; {at['date'][:10]}"
    parts.append(f"<text x='24' y='{y + 2}' font-size='11.5' fill='#5a6875'>{escape(foot)}</text>")
    height = y + 20
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' "
            f"{FONT} role='img' aria-label='Waybill and its peers'>\n<rect width='{WIDTH}' height='{height}' fill='#fbfcfd'/>\n"
            + "\n".join(parts) + "\n</svg>\n")


def bar_of(y, name, value, unit, colour, length):
    """Returns one bar with its name and its figure."""
    middle = y + BAR / 2 + 4.5
    weight = " font-weight='600'" if colour == OURS else ""
    return [
        f"<text x='{LEFT - 12}' y='{middle}' font-size='13' text-anchor='end' fill='#1c2733'{weight}>{escape(name)}</text>",
        f"<rect x='{LEFT}' y='{y}' width='{max(2, length):.1f}' height='{BAR}' rx='3' fill='{colour}'/>",
        f"<text x='{LEFT + max(2, length) + 8:.1f}' y='{middle}' font-size='13' fill='#1c2733'{weight}>"
        f"{escape(unit.format(value))}</text>",
    ]
