// Devices, as bars of lanes.
import { byId, element, percent } from "./element.js";

export function devices(view, partition) {
  const groups = Map.groupBy(view.lanes, (lane) => lane.device);
  byId("shares").replaceChildren(...[...groups].map(([device, lanes]) => one(device, lanes, partition)));
}

function one(device, lanes, partition) {
  const idle = Map.groupBy(lanes, (lane) => lane.idle_priority === true);
  const rows = [row(idle.get(false) ?? [], partition)];
  if (idle.has(true)) rows.push(element("h4", {}, "at idle priority"), row(idle.get(true), partition));
  return element("div", { class: "device" }, element("h3", {}, device), ...rows);
}

function row(lanes, partition) {
  const parts = [...lanes].sort((a, b) => a.first_unit - b.first_unit || a.lane - b.lane).map((lane) => {
    const busy = Math.min(1, lane.busy.reduce((sum, [, part]) => sum + part, 0));
    const names = lane.busy.filter(([, part]) => part >= 0.005).sort((a, b) => b[1] - a[1]).map(([name, part]) => `${name} ${percent(part)}`);
    const fill = element("span", { class: "fill" });
    fill.style.height = `${100 * busy}%`;
    const last = lane.first_unit + lane.units - 1;
    const units = lane.units === 1 ? `unit ${lane.first_unit}` : `units ${lane.first_unit}–${last}`;
    const words = `lane ${lane.lane}, ${units}, ${lane.state}: ${percent(busy)} busy${names.length ? `: ${names.join(", ")}` : ""}`;
    const button = element("button", { type: "button", class: lane.state === "up" ? null : "down", title: words, "aria-label": words, click: () => reason(lane, words, partition) },
      fill, element("span", { class: "label" }, `lane ${lane.lane} · ${percent(busy)}`), element("span", { class: "label" }, names.slice(0, 3).join(", ") || "idle"));
    button.style.flexGrow = lane.units;
    return button;
  });
  return element("div", { class: "shares" }, ...parts);
}

function reason(lane, words, partition) {
  const line = byId("share-reason");
  line.hidden = false;
  const gpulet = partition?.gpulets.find((one) => one.device === lane.device && one.first_unit === lane.first_unit);
  const models = new Set(gpulet?.slots.map((slot) => slot.workload));
  const reasons = partition?.models.filter((model) => models.has(model.name)).map((model) => `${model.name}: ${model.target.toFixed(1)} rows/s planned: ${model.reason}`) ?? [];
  line.textContent = [words, ...reasons].join(". ");
}
