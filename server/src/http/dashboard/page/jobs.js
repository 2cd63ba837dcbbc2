// Jobs: files whose rows run behind the requests of clients.
import { bar, byId, element, percent, short } from "./element.js";
import { call } from "./server.js";

const SHOWN = 20;
const IN_TIME = { in_time: "yes", late: "no", unknown: "not known yet" };

/** Renews the table. Servers without jobs do not show it. */
export async function latest() {
  const answer = await call("/v2/jobs").catch((problem) => {
    if (problem.status === undefined) throw problem;
    return { jobs: [] };
  });
  const known = answer.jobs.toSorted((a, b) => (a.state === "open" ? 0 : 1) - (b.state === "open" ? 0 : 1) || b.id - a.id);
  byId("jobs").hidden = byId("jobs-link").hidden = known.length === 0;
  byId("jobs-rows").replaceChildren(...known.slice(0, SHOWN).map(row));
  const more = known.length - SHOWN;
  byId("jobs-more").textContent = more > 0 ? `${more} more: tessera job list` : "";
}

function row(job) {
  const cell = (name, kind, ...content) => element("td", { "data-name": name, class: kind }, ...content);
  const state = job.state !== "open" ? job.state : job.in_flight > 0 ? "running" : "waiting";
  const kind = job.state === "failed" || job.verdict === "late" ? "bad" : job.state === "done" ? "good" : "";
  const why = job.error || job.waits_for;
  const done = job.rows > 0 ? job.done / job.rows : 1;
  const rows = `${short(job.done)} of ${short(job.rows)}`;
  return element(
    "tr", {},
    element("th", { scope: "row" }, `${job.id} ${job.model}`, element("span", { class: "soft" }, ` ${job.tenant}`)),
    cell("State", kind, state, why ? element("span", { class: "soft" }, ` ${why}`) : null),
    cell("Rows", "", bar(done, kind, percent(done)), " ", rows),
    cell("With an error", job.mistakes > 0 ? "number bad" : "number", short(job.mistakes)),
    cell("Rows/s", "number", short(job.forecast?.rate)),
    cell("Ends", "", ends(job)),
    cell("By", job.verdict === "late" ? "bad" : "", job.by === undefined ? "–" : `${time(job.by)}: ${IN_TIME[job.verdict] ?? job.verdict}`),
  );
}

function ends(job) {
  if (job.ended !== undefined) return time(job.ended);
  if (!job.forecast) return "–";
  const { end, earliest, latest } = job.forecast;
  return `${time(end)} (${time(earliest)} to ${latest === null || latest === undefined ? "?" : time(latest)})`;
}

function time(millis) {
  const at = new Date(millis), today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}
