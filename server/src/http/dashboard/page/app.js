// Follows the server, and shows what it says.
import * as actions from "./actions.js";
import { devices } from "./devices.js";
import { byId } from "./element.js";
import { families } from "./families.js";
import * as jobs from "./jobs.js";
import { batches, models, summary, tenants } from "./now.js";
import * as requests from "./requests.js";
import { call, follow } from "./server.js";
import * as timeline from "./timeline.js";
import * as whatIf from "./what_if.js";

const RETRY_MS = 2000, SLOW_MS = 3000;
let partition = null, looks = 0;

function show(view) {
  summary(view);
  models(view);
  batches(view);
  families(view);
  tenants(view);
  devices(view, partition);
  whatIf.lanes(view.lanes.filter((lane) => !lane.idle_priority).length);
  if (view.second) timeline.add(view.second);
  timeline.draw(partition);
  looks += 1;
  document.documentElement.dataset.looks = looks;
}

function disconnected(problem) {
  const line = byId("summary");
  line.className = "bad";
  line.textContent = `No connection: ${problem}. Trying again.`;
}

const later = (time) => new Promise((resolve) => setTimeout(resolve, time));

async function live() {
  for (;;) {
    try {
      timeline.begin(await call("/v2/activity/timeline"));
      await follow("/v2/activity/events", show);
      disconnected("the server ended it");
    } catch (problem) {
      disconnected(problem.message);
    }
    await later(RETRY_MS);
  }
}

async function slowly() {
  for (;;) {
    try {
      await requests.latest();
      await jobs.latest();
      partition = await call("/v2/partition").catch((problem) => {
        if (problem.status === undefined) throw problem;
        return null;
      });
      byId("partition-actions").hidden = partition === null;
    } catch {
      // The live stream says what is wrong.
    }
    await later(document.hidden ? 10 * SLOW_MS : SLOW_MS);
  }
}

whatIf.listen();
actions.listen(() => requests.latest().catch(() => {}));
for (const id of ["of-model", "of-outcome"]) byId(id).addEventListener("change", () => requests.latest().catch(() => {}));
byId("span").addEventListener("change", () => timeline.draw(partition));
addEventListener("resize", () => timeline.draw(partition));
live();
slowly();
