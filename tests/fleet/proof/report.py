"""The figures of a fault, as a row of the table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from fleet.proof.load import Request, recovery
from fleet.proof.simulation import Predicted

# From here on, requests may be late because the client's machine was busy.
CLIENT_LATE_MS = 50.0


@dataclass
class Row:
    """What became of the requests of some models around a fault."""

    fault: str
    sent: int
    in_time: int
    late: int
    refused: dict[str, int]
    lost: dict[str, int]
    recovered_s: float
    # Lost requests that were sent before what failed took no more, so that they may have been inside.
    inside: int
    facts: dict[str, float | str] = field(default_factory=dict)
    # Counters of Envoy and of the pickers that changed.
    counters: dict[str, float] = field(default_factory=dict)
    lost_by_model: dict[str, int] = field(default_factory=dict)
    # The longest time by which the client was late to send.
    send_error_ms: float = 0.0
    simulated: Predicted | None = None
    # Requests that were not answered in time: seconds from the fault until they were due, model, outcome and reason.
    not_in_time: list[tuple[float, str, str, str]] = field(default_factory=list)

    def lost_count(self) -> int:
        """Requests that were neither answered nor refused with a reason."""
        return sum(self.lost.values())


def row(fault: str, requests: list[Request], at: float, down: float) -> Row:
    """The figures of these requests. `down`: from when on what failed took no request."""
    outcomes = Counter(request.outcome for request in requests)
    reasons = {
        outcome: dict(Counter(request.reason for request in requests if request.outcome == outcome))
        for outcome in ("refused", "lost")
    }
    return Row(
        fault=fault,
        sent=len(requests),
        in_time=outcomes["good"],
        late=outcomes["late"],
        refused=reasons["refused"],
        lost=reasons["lost"],
        recovered_s=recovery(requests, at),
        inside=sum(request.outcome == "lost" and request.sent < down for request in requests),
        lost_by_model=dict(Counter(request.model for request in requests if request.outcome == "lost")),
        not_in_time=[
            (round(request.due - at, 3), request.model, request.outcome, request.reason)
            for request in requests
            if request.outcome != "good"
        ],
        send_error_ms=max((request.sent - request.due for request in requests), default=0.0) * 1e3,
    )


HEADERS = ["fault", "sent", "in time", "late", "refused", "lost", "inside", "recovered s", "simulated: in time", "lost", "recovered s"]


def _cells(found: Row) -> list[str]:
    share = lambda part, whole: f"{100 * part / whole:.2f} %" if whole else ""  # noqa: E731
    cells = [found.fault, f"{found.sent}", share(found.in_time, found.sent), f"{found.late}"]
    cells += [f"{sum(found.refused.values())}", f"{found.lost_count()}", f"{found.inside}", f"{found.recovered_s:.2f}"]
    simulated = found.simulated
    if simulated is None:
        return [*cells, "", "", ""]
    return [*cells, share(simulated.in_time, simulated.sent), f"{simulated.lost}", f"{simulated.recovered_s:.1f}"]


def table(rows: Iterable[Row]) -> str:
    """All rows, aligned, and what each fault showed."""
    rows = list(rows)
    lines = [HEADERS, *(_cells(found) for found in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADERS))]
    text = []
    for first, *others in lines:
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *padded]).rstrip())
    for found in rows:
        notes = [f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in found.facts.items()]
        notes += [f"refused {count}: {reason}" for reason, count in found.refused.items()]
        notes += [f"lost {count}: {reason}" for reason, count in found.lost.items()]
        if found.send_error_ms > CLIENT_LATE_MS:
            notes.append(f"the client itself was up to {found.send_error_ms:.0f} ms late: the machine was busy")
        if notes:
            text += ["", f"{found.fault}:", *(f"  {note}" for note in notes)]
    return "\n".join(text)


def document(rows: Iterable[Row], seconds: float, missed: list[str]) -> dict:
    """Everything as JSON."""
    return {"seconds": seconds, "missed": missed, "rows": [asdict(found) for found in rows]}
