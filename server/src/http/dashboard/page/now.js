// The table of models, the sizes of batches, and tenants.
import { bar, byId, element, ms, percent, short } from "./element.js";

const TARGET = 0.99;
// Why batches start, as people say it.
const STARTS = {
  lane_free: "a lane was free", full: "the batch was full", preferred_size: "a preferred size was reached", delay_over: "the longest wait was over",
  last_start: "it could not wait any longer", enough: "no more requests were expected", soonest_on_average: "this size answers soonest",
  largest: "it had the most requests", planned: "the plan gave it this size", alone: "it ran alone after a failure", passed_over: "others wait for a faster lane",
};

export function summary(view) {
  const missing = view.models.filter((model) => model.attainment !== undefined && model.attainment < TARGET);
  const rate = view.models.reduce((sum, model) => sum + model.rate, 0);
  const state = view.not_ready ? `not ready: ${view.not_ready}` : missing.length === 0 ? "every objective is met" : `${missing.length} of ${view.models.length} models miss their objective: ${missing.slice(0, 3).map((model) => model.name).join(", ")}`;
  const line = byId("summary");
  line.textContent = `${state}; ${short(rate)} requests/s, ${view.second?.queued ?? 0} waiting`;
  line.className = view.not_ready || missing.length > 0 ? "bad" : "good";
}

export function models(view) {
  byId("models").replaceChildren(...view.models.map(row));
  byId("rollout-actions").hidden = !view.models.some((model) => model.rollout);
  const names = [...new Set(view.models.map((model) => model.name))].sort();
  options(byId("of-model"), names);
  byId("known-models").replaceChildren(...names.map((name) => element("option", { value: name })));
}

function options(select, names) {
  const known = [...select.options].slice(1).map((option) => option.value);
  if (known.join("\n") === names.join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...names.map((name) => element("option", { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : "";
}

function row(model) {
  const cell = (name, kind, ...content) => element("td", { "data-name": name, class: kind }, ...content);
  const kind = model.attainment === undefined ? "soft" : model.attainment >= TARGET ? "good" : model.attainment >= 0.9 ? "late" : "bad";
  const used = model.objective_ms && model.p99_ms !== undefined ? model.p99_ms / model.objective_ms : null;
  const of = used === null ? ms(model.p99_ms) : `${ms(model.p99_ms)} of ${ms(model.objective_ms)}`;
  const p99 = used === null ? [of] : [bar(used, used > 1 ? "bad" : used > 0.9 ? "late" : "", of), " ", of];
  return element(
    "tr", {},
    element("th", { scope: "row" }, model.name, element("span", { class: "soft" }, ` v${model.version} ${model.policy}`), model.rollout ? element("span", { class: "late" }, ` ${model.rollout}`) : null),
    cell("In time", kind, percent(model.attainment)),
    cell("Requests/s", "number", short(model.rate)),
    cell("Refused/s", model.unanswered > 0 ? "number bad" : "number", short(model.unanswered)),
    cell("p99 of objective", "", ...p99),
    cell("Burn 5m / 1h", model.burn_5m > 6 ? "number bad" : "number", `${short(model.burn_5m)} / ${short(model.burn_1h)}`),
    cell("Queue", "number", short(model.queued)),
    cell("Lanes", "number", short(model.lanes)),
    cell("Lanes busy", "number", percent(model.load)),
  );
}

export function batches(view) {
  byId("sizes").replaceChildren(...view.models.filter((model) => model.batches.length > 0).map((model) => {
    const all = model.batches.reduce((sum, [, count]) => sum + count, 0);
    const most = Math.max(...model.batches.map(([, count]) => count));
    const rows = model.batches.flatMap(([size, count]) => [
      element("span", {}, size === 1 ? "1 row" : `${size} rows`),
      bar(count / most, "", `${percent(count / all)} of the batches`),
      element("span", { class: "number" }, short(count)),
    ]);
    const starts = model.starts.toSorted(([, a], [, b]) => b - a).slice(0, 4).flatMap(([reason, count]) => [
      element("span", {}, STARTS[reason] ?? reason.replaceAll("_", " ")),
      element("span", { class: "number" }, percent(count / model.starts.reduce((sum, [, one]) => sum + one, 0))),
    ]);
    const title = element("h3", {}, model.name, element("span", { class: "soft" }, ` v${model.version}`));
    return element("div", { class: "card" }, title, element("div", { class: "rows" }, ...rows), element("div", { class: "starts" }, ...starts));
  }));
}

export function tenants(view) {
  const known = view.tenants ?? [];
  byId("tenants").hidden = byId("tenants-link").hidden = known.length === 0;
  const used = known.reduce((sum, tenant) => sum + tenant.used, 0);
  const weights = known.reduce((sum, tenant) => sum + tenant.weight, 0);
  byId("uses").replaceChildren(element("div", { class: "rows" }, ...known.flatMap((tenant) => {
    const part = used > 0 ? tenant.used / used : 0;
    const quota = tenant.quota === undefined ? "no quota" : `quota ${short(tenant.quota)} s/s`;
    return [
      element("span", {}, tenant.name),
      bar(part, "", `${percent(part)} of the lane time used`),
      element("span", {}, `${percent(part)} used, ${percent(tenant.weight / weights)} due, ${short(tenant.used)} s/s, ${quota}`),
    ];
  })));
}
