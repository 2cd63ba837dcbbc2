"""An open-loop client in a process of its own: `python -m fleet.proof.client ADDRESS SECONDS`.

`tessera load` cannot be used through a gateway whose nodes have different models: it first asks for the metadata of every model, and
a server answers that for its own models only. Requests are due at times drawn in advance (Poisson), and are sent then, whether or not
earlier ones were answered. Writes a line of JSON for each request that ended, and ten times a second the time until which
all requests have ended. Ends when standard input does, or after SECONDS.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import random
import sys
import time
from collections.abc import Iterator

import aiohttp
import uvloop

from fleet.proof.models import Model, read

# Without an answer for this time, a request counts as lost.
TIMEOUT_SECONDS = 10.0
SETTLED_EVERY_SECONDS = 0.1
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}]})
OUTPUT = [1.0, 2.0, 3.0, 4.0]
# Statuses with which a server that is busy or drains refuses a request.
REFUSALS = (429, 503, 504)


def arrivals(models: list[Model], begin: float, end: float) -> Iterator[tuple[float, Model]]:
    """Times at which requests are due, in order."""

    def of(model: Model) -> Iterator[tuple[float, Model]]:
        draws, at = random.Random(model.name), begin
        while (at := at + draws.expovariate(model.rate)) < end:
            yield at, model

    return heapq.merge(*(of(model) for model in models), key=lambda due: due[0])


class Client:
    """Sends the requests and writes what became of them."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._address, self._session = address, session
        self._open: dict[int, float] = {}

    async def send(self, number: int, due: float, model: Model) -> None:
        """One request, from its due time on."""
        sent = time.monotonic()
        outcome, reason = "lost", ""
        try:
            url = f"http://{self._address}/v2/models/{model.name}/infer"
            async with self._session.post(url, data=BODY) as answer:
                text = await answer.text()
                outcome, reason = self._outcome(answer, text)
        except (OSError, aiohttp.ClientError, asyncio.TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
        ended = time.monotonic()
        if outcome == "good" and ended - due > model.slo_s:
            outcome = "late"
        del self._open[number]
        row = {"model": model.name, "due": due, "sent": sent, "ended": ended, "outcome": outcome, "reason": reason}
        print(json.dumps(row))

    def _outcome(self, answer: aiohttp.ClientResponse, text: str) -> tuple[str, str]:
        if answer.status == 200:
            right = json.loads(text)["outputs"][0]["data"] == OUTPUT
            return ("good", "") if right else ("lost", f"a wrong answer: {text[:200]}")
        reason = answer.headers.get("x-tessera-reason")
        if reason and answer.status in REFUSALS:
            return "refused", reason
        return "lost", f"{answer.status} {reason or ''} {text[:200]}"

    async def run(self, models: list[Model], seconds: float) -> None:
        """Send until standard input ends."""
        loop = asyncio.get_running_loop()
        stop = loop.run_in_executor(None, sys.stdin.read)
        begin = time.monotonic() + 0.2
        tasks = set()
        ticking = loop.create_task(self._tell())
        for number, (due, model) in enumerate(arrivals(models, begin, begin + seconds)):
            self._next = due
            if (wait := due - time.monotonic()) > 0:
                await asyncio.wait([stop], timeout=wait)
            if stop.done():
                break
            self._open[number] = due
            task = loop.create_task(self.send(number, due, model))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(tasks)
        ticking.cancel()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(SETTLED_EVERY_SECONDS)
            open_since = min(self._open.values(), default=time.monotonic())
            print(json.dumps({"settled": min(open_since, self._next)}), flush=True)


async def main() -> None:
    """Run the client of the command line."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=headers
    ) as session:
        await Client(sys.argv[1], session).run(read(), float(sys.argv[2]))


if __name__ == "__main__":
    gc.freeze()
    uvloop.run(main())
