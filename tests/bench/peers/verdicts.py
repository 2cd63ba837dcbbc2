"""What the figures say, in sentences made of them: where Tessera is ahead, where it loses, and what was aimed at."""

from __future__ import annotations

from dataclasses import dataclass

from bench.peers.record import Capacity, ClosedLoop, Outcome

OURS = "tessera"
# Closer than this is called even: two runs of the same thing differ by as much.
EVEN = 0.03
# CPU microseconds a request of a Triton with a native backend, which cannot be built out of packages: measured earlier
# on a machine of this kind, by (protocol, requests in flight).
NATIVE_TRITON_US = {("HTTP", 8): 93.0, ("gRPC", 32): 66.0}
CPU_AIM = 1 / 3
# Of what queueing allows with the same batch times.
LIMIT_AIM = 0.97


@dataclass(frozen=True)
class Aim:
    """One figure that was to be reached."""

    what: str
    aim: str
    measured: str
    met: bool


def groups(outcome: Outcome) -> dict[tuple[str, str, int], list[ClosedLoop]]:
    """Comparable rows: same client, protocol and concurrency. JSON and binary tensors are compared, because a server
    without binary tensors over HTTP can only use JSON."""
    found: dict[tuple[str, str, int], list[ClosedLoop]] = {}
    for row in outcome.closed_loop:
        if row.client != "-":
            found.setdefault((row.client, row.protocol.split(",")[0], row.concurrency), []).append(row)
    return found


def ours_of(rows: list[ClosedLoop]) -> ClosedLoop | None:
    return next((row for row in rows if row.server == OURS and not row.missing and not row.errors), None)


def peers_of(rows: list[ClosedLoop], without: tuple[str, ...] = ()) -> list[ClosedLoop]:
    return [row for row in rows if row.server not in (OURS, *without) and not row.missing and row.errors == 0]


MEASURES = {
    # name -> (figure, whether more is better, how it is written)
    "requests per second": (lambda row: row.rate, True, lambda value: f"{value:,.0f}"),
    "p50": (lambda row: row.p50_us, False, lambda value: f"{value / 1e3:.3g} ms"),
    "p99": (lambda row: row.p99_us, False, lambda value: f"{value / 1e3:.3g} ms"),
    "CPU time per request": (lambda row: row.cpu_us, False, lambda value: f"{value:,.0f} us"),
}


def closed_loop_losses(outcome: Outcome) -> list[str]:
    """A sentence for each figure in which a peer is better."""
    sentences = [
        f"`{outcome.model}`: Tessera failed ({row.missing})."
        for row in outcome.closed_loop
        if row.server == OURS and row.client == "-"
    ]
    for (client, protocol, concurrency), rows in groups(outcome).items():
        sentences += [
            f"`{outcome.model}`, {client} over {protocol} with {concurrency} in flight: Tessera has no figure "
            f"({row.missing or f'{row.errors} failed'})."
            for row in rows
            if row.server == OURS and (row.missing or row.errors)
        ]
        own, peers = ours_of(rows), peers_of(rows)
        if own is None or not peers:
            continue
        for measure, (figure, more, written) in MEASURES.items():
            best = (max if more else min)(peers, key=figure)
            ratio = figure(own) / figure(best) if figure(best) else 1.0
            worse = 1 - ratio if more else ratio - 1
            if worse > EVEN:
                sentences.append(
                    f"`{outcome.model}`, {client} over {protocol} with {concurrency} in flight, {measure}: Tessera "
                    f"{written(figure(own))}, {best.server} {written(figure(best))} ({worse:.0%} worse)."
                )
    return sentences


def compared(outcome: Outcome) -> int:
    """Number of comparable figures."""
    pairs = sum(1 for rows in groups(outcome).values() if ours_of(rows) and peers_of(rows)) * len(MEASURES)
    return pairs + sum(1 for slo in outcome.slos_ms if best_peer(outcome, slo) and our_capacity(outcome, slo))


def our_capacity(outcome: Outcome, slo_ms: float) -> Capacity | None:
    return next(
        (row for row in outcome.capacity if row.server == OURS and row.slo_ms == slo_ms and not row.missing), None
    )


def best_peer(outcome: Outcome, slo_ms: float, family: str | None = None) -> Capacity | None:
    """The peer's setting with the highest capacity."""
    rows = [
        row
        for row in outcome.capacity
        if row.slo_ms == slo_ms
        and not row.missing
        and row.server != OURS
        and family in (None, outcome.families[row.server])
    ]
    return max(rows, key=lambda row: row.rate, default=None)


def capacity_losses(outcome: Outcome) -> list[str]:
    sentences = []
    for slo in outcome.slos_ms:
        own, best = our_capacity(outcome, slo), best_peer(outcome, slo)
        if own is None and best is not None:
            sentences.append(f"`{outcome.model}`, capacity at {slo:g} ms: Tessera has no figure, {best.server} has.")
        elif own and best and own.rate < best.rate * (1 - EVEN):
            sentences.append(
                f"`{outcome.model}`, capacity at {slo:g} ms: Tessera {own.rate:,.0f}/s, {best.server} {best.rate:,.0f}/s "
                f"({1 - own.rate / best.rate:.0%} less)."
            )
    return sentences


def aims(outcomes: list[Outcome]) -> list[Aim]:
    found = []
    for outcome in outcomes:
        if outcome.model == "identity":
            found += _cpu_aims(outcome)
        for slo in outcome.slos_ms:
            own, best = our_capacity(outcome, slo), best_peer(outcome, slo, "triton")
            what = f"capacity of `{outcome.model}` at {slo:g} ms relative to"
            if own and own.limit:
                ratio = own.rate / own.limit
                found.append(
                    Aim(
                        f"{what} the queueing limit",
                        f">= {LIMIT_AIM:.0%}",
                        f"{own.rate:,.1f} / {own.limit:,.1f} per second = {ratio:.1%}",
                        ratio >= LIMIT_AIM,
                    )
                )
            if own and best and best.rate:
                ratio = own.rate / best.rate
                found.append(
                    Aim(
                        f"{what} Triton's best setting ({best.server})",
                        ">= 1x",
                        f"{own.rate:,.0f} / {best.rate:,.0f} per second = {ratio:.2f}x",
                        ratio >= 1,
                    )
                )
    return found


def _cpu_aims(outcome: Outcome) -> list[Aim]:
    found = []
    for (protocol, concurrency), native in NATIVE_TRITON_US.items():
        client = "wrk" if protocol == "HTTP" else "h2load"
        rows = groups(outcome).get((client, protocol, concurrency), [])
        own, peers = ours_of(rows), peers_of(rows, without=("triton, echo",))
        if own is None:
            continue
        where = f"CPU time per request, identity, {protocol}, {concurrency} in flight"
        best = min(peers, key=lambda row: row.cpu_us, default=None)
        references = [("a native Triton (measured earlier)", native)]
        if best is not None:
            references.append((f"the best peer ({best.server})", best.cpu_us))
        for name, reference in references:
            ratio = own.cpu_us / reference
            measured = f"{own.cpu_us:.1f} / {reference:.1f} us = {ratio:.2f}x"
            found.append(Aim(f"{where}, relative to {name}", "<= 0.33x", measured, ratio <= CPU_AIM))
    return found
