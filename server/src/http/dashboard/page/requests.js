// The latest requests, and why one ended as it did.
import { bar, byId, element, ms, short } from "./element.js";
import { call } from "./server.js";

const SHOWN = 15;
const NOT_IN_TIME = ["refused", "late", "failed"];
const KIND = { in_time: "good", late: "late", refused: "bad", failed: "bad", cancelled: "soft" };

export async function latest() {
  const query = new URLSearchParams({ limit: String(SHOWN) });
  if (byId("of-model").value) query.set("model", byId("of-model").value);
  const chosen = byId("of-outcome").value;
  const outcomes = chosen ? [chosen] : NOT_IN_TIME;
  const found = await Promise.all(outcomes.map((outcome) => call(`/v2/explain?${query}&outcome=${outcome}`)));
  const requests = found.flatMap((one) => one.requests).sort((a, b) => b.arrived.localeCompare(a.arrived)).slice(0, SHOWN);
  const focused = document.activeElement?.dataset?.id;
  byId("log").replaceChildren(...(requests.length > 0 ? requests.map(row) : [element("tr", {}, element("td", { colspan: "7", class: "soft" }, "none"))]));
  if (focused) byId("log").querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function row(one) {
  const cell = (name, kind, content) => element("td", { "data-name": name, class: kind }, content);
  const open = element("button", { type: "button", class: "row", "data-id": one.id, click: () => explain(one.id) }, one.id.length > 24 ? `${one.id.slice(0, 23)}…` : one.id);
  return element("tr", {},
    cell("Arrived", "", new Date(one.arrived).toLocaleTimeString("en-GB")), cell("Model", "", one.model), cell("Outcome", KIND[one.outcome], one.outcome.replace("_", " ")),
    cell("Reason", "", one.reason ?? ""), cell("Took", "number", ms(one.total_ms)), cell("Objective", "number", ms(one.objective_ms)), cell("Id", "", open));
}

async function explain(id) {
  const place = byId("explanation");
  try {
    const one = await call(`/v2/explain/${encodeURIComponent(id)}`);
    place.replaceChildren(list(facts(one)), ...pipeline(one));
  } catch (problem) {
    place.replaceChildren(element("p", { class: "bad" }, problem.message));
  }
  byId("explain").showModal();
}

/** The stages of a pipeline, with a bar from the start of each to its end within the whole request. */
function pipeline(one) {
  const stages = one.pipeline ?? [];
  if (stages.length === 0) return [];
  const anyFailed = stages.some((stage) => stage.reason);
  const cells = (stage) => [stage.stage, `${stage.model} v${stage.version}`, short(stage.rows), ms(stage.queue_ms), ms(stage.compute_ms), ...(anyFailed ? [stage.reason ?? ""] : [])];
  const name = ["Stage", "Model", "Rows", "Queue", "Compute", ...(anyFailed ? ["Failed"] : [])];
  const head = element("tr", {}, ...name.map((text) => element("th", { scope: "col" }, text)), element("th", { scope: "col" }, "From start to end"));
  const body = stages.map((stage) => element("tr", {},
    ...cells(stage).map((text, at) => element("td", { "data-name": name[at], class: at > 1 && at < 5 ? "number" : at === 5 ? "bad" : "" }, text)),
    element("td", { "data-name": "From start to end" }, bar(stage.ended_ms / one.total_ms, stage.reason ? "bad" : "", `${ms(stage.started_ms)} to ${ms(stage.ended_ms)}`, stage.started_ms / one.total_ms), ` ${short(stage.started_ms)} to ${ms(stage.ended_ms)}`)));
  return [element("div", { class: "wide" }, element("table", { id: "stages" }, element("caption", { class: "unseen" }, "Stages of the pipeline"), element("thead", {}, head), element("tbody", {}, ...body)))];
}

function list(rows) {
  return element("dl", {}, ...rows.filter(([, value]) => value !== undefined && value !== null && value !== "").flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function facts(one) {
  const rows = [
    ["id", one.id], ["arrived", `${one.arrived} over ${one.transport}`], ["model", one.version === undefined ? one.model : `${one.model} version ${one.version}`], ["tenant", one.tenant],
    ["rows", one.rows], ["outcome", one.outcome.replace("_", " ")], ["why", one.message ?? one.reason], ["took", ms(one.total_ms)], ["objective", one.objective_ms === undefined ? undefined : ms(one.objective_ms)],
  ];
  if (one.remedies?.length) rows.push(["in time if", one.remedies.join("; ")]);
  if (one.admission) rows.push(["at admission", `${one.admission.rows_before} rows before it, ${one.admission.lanes} lanes; earliest end after ${ms(one.admission.earliest_end_ms)}, with one more lane ${ms(one.admission.earliest_end_with_one_more_lane_ms)}`]);
  if (one.stages_ms) rows.push(["stages", Object.entries(one.stages_ms).map(([name, time]) => `${name.replaceAll("_", " ")} ${ms(time)}`).join(", ")]);
  if (one.batch) {
    const batch = one.batch;
    rows.push(["batch", `${batch.rows} rows on lane ${batch.lane}, ${ms(batch.expected_ms)} expected, ${batch.rows_left} rows left waiting, ${batch.dropped} dropped`], ["started because", batch.start_reason], ["this lane because", batch.lane_choice], ["together with", batch.companions?.slice(0, 10).join(", ")]);
  }
  return rows;
}
