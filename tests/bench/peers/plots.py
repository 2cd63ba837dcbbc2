"""Two SVG plots without a background, in colours of medium lightness, readable in light and dark mode."""

from __future__ import annotations

import math
from html import escape

from bench.peers.record import ClosedLoop, Outcome

INK, FAINT = "#7d8590", "#7d859055"
COLOURS = {"tessera": "#2f9e6e", "triton": "#5b8def", "mlserver": "#d9822b"}
WIDTH, LEFT, ROW = 760, 210, 22
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def _svg(height: float, parts: list[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" {FONT}>\n<title>{escape(title)}</title>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal", colour: str = INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def capacity_bars(outcomes: list[Outcome]) -> str | None:
    """One panel for each model and objective, with its own scale and a bar for each setting, Tessera first."""
    panels = []
    for outcome in outcomes:
        for slo in outcome.slos_ms:
            rows = [row for row in outcome.capacity if row.slo_ms == slo and not row.missing]
            if rows:
                tessera_first = sorted(rows, key=lambda row: (outcome.families[row.server] != "tessera", -row.rate))
                panels.append((outcome, slo, tessera_first))
    if not panels:
        return None
    parts, y = [], 8.0
    for outcome, slo, rows in panels:
        y += 22
        parts.append(_text(LEFT, y - 6, f"{outcome.model}, SLO {slo:g} ms: requests a second", weight="bold"))
        most = max(row.rate for row in rows) or 1.0
        for row in rows:
            length = (WIDTH - LEFT - 70) * row.rate / most
            colour = COLOURS[outcome.families[row.server]]
            parts.append(_text(LEFT - 8, y + 14, row.server, "end"))
            parts.append(
                f'<rect x="{LEFT}" y="{y + 3:.1f}" width="{max(length, 1):.1f}" height="{ROW - 7}" rx="2" '
                f'fill="{colour}"/>'
            )
            parts.append(_text(LEFT + length + 6, y + 14, f"{row.rate:,.0f}"))
            y += ROW
    return _svg(y + 12, parts, "Capacity at SLO by server and setting")


def latency_percentiles(outcome: Outcome, client: str, concurrency: int, families: dict[str, str]) -> str | None:
    """Latency by percentile, a line a server, on a logarithmic scale."""
    rows = [
        row
        for row in outcome.closed_loop
        if row.client == client and row.concurrency == concurrency and row.latency_us and not row.errors
    ]
    if not rows:
        return None
    top, bottom, right = 40.0, 320.0, WIDTH - 190.0
    values = [us for row in rows for us in row.latency_us.values() if us > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    percentiles = sorted({float(p) for row in rows for p in row.latency_us})

    def x(percentile: float) -> float:
        place = percentiles.index(percentile) / max(1, len(percentiles) - 1)
        return 70 + (right - 70) * place

    def y(us: float) -> float:
        return bottom - (bottom - top) * (math.log10(us) - low) / max(1, high - low)

    title = f"{outcome.model}: latency by percentile, {client}, {concurrency} requests in flight"
    parts = [_text(70, 22, title, weight="bold")]
    for power in range(low, high + 1):
        at = y(10**power)
        parts.append(f'<line x1="70" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}" stroke="{FAINT}"/>')
        parts.append(_text(62, at + 4, f"{10**power / 1000:g} ms", "end"))
    parts += [_text(x(p), bottom + 20, f"p{p:g}", "middle") for p in percentiles]
    parts += _lines(rows, families, x, y, right)
    return _svg(bottom + 36, parts, title)


def _lines(rows: list[ClosedLoop], families: dict[str, str], x, y, right: float) -> list[str]:
    parts, taken = [], []
    dashes: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: max(row.latency_us.values())):
        points = sorted((float(p), us) for p, us in row.latency_us.items())
        family = families[row.server]
        dash = ("", ' stroke-dasharray="6 4"', ' stroke-dasharray="2 3"')[min(dashes.get(family, 0), 2)]
        dashes[family] = dashes.get(family, 0) + 1
        path = " ".join(f"{x(p):.1f},{y(us):.1f}" for p, us in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[family]}" stroke-width="2"{dash}/>')
        # Labels at the right end of each line, pushed down where two would lie on each other.
        at = y(points[-1][1]) + 4
        while any(abs(at - other) < 14 for other in taken):
            at += 2
        taken.append(at)
        parts.append(_text(right + 8, at, row.server, colour=COLOURS[family]))
    return parts
