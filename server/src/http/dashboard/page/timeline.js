// The last hour on one time axis.
import { byId, element, shape, short } from "./element.js";

const HEIGHT = 190, LEFT = 44, BOTTOM = 22, TOP = 8;
const seconds = [];

export function begin(known) {
  seconds.splice(0, seconds.length, ...known);
}

export function add(second) {
  if (seconds.at(-1)?.at === second.at) return;
  seconds.push(second);
  if (seconds.length > 3600) seconds.shift();
}

export function draw(partition) {
  const place = byId("chart");
  const width = Math.max(280, place.clientWidth);
  const span = Number(byId("span").value);
  const until = seconds.at(-1)?.at ?? Math.floor(Date.now() / 1000);
  const from = until - span;
  const columns = group(seconds.filter((second) => second.at > from), from, span, Math.floor((width - LEFT) / 3));
  const most = Math.max(1, ...columns.map((column) => column.in_time + column.late + column.unanswered));
  const x = (at) => LEFT + ((at - from) / span) * (width - LEFT);
  const y = (count) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - count / most);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": `Requests a second over the last ${span / 60} minutes, at most ${short(most)}` });
  for (const part of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: width, y1: y(most * part), y2: y(most * part) }), shape("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, short(most * part)));
  }
  const wide = (width - LEFT) / columns.length;
  columns.forEach((column, at) => {
    let below = 0;
    for (const [key, kind] of [["in_time", "in-time"], ["late", "late"], ["unanswered", "unanswered"]]) {
      if (column[key] > 0) svg.append(shape("rect", { class: kind, x: LEFT + at * wide, width: wide + 0.3, y: y(below + column[key]), height: Math.max(0.5, y(below) - y(below + column[key])) }));
      below += column[key];
    }
  });
  const ticks = width < 500 ? 3 : 6;
  for (let tick = 0; tick <= ticks; tick++) {
    const at = from + (span * tick) / ticks;
    svg.append(shape("text", { x: Math.min(width - 2, x(at)), y: HEIGHT - 5, "text-anchor": tick === ticks ? "end" : "middle" }, new Date(at * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: span < 900 ? "2-digit" : undefined })));
  }
  const events = changes(partition).filter((event) => event.at > from && event.at <= until);
  for (const event of events) svg.append(shape("line", { class: "event", x1: x(event.at), x2: x(event.at), y1: TOP, y2: HEIGHT - BOTTOM }, shape("title", {}, event.text)));
  const cursor = shape("line", { class: "cursor", x1: 0, x2: 0, y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("pointermove", (moved) => {
    const box = svg.getBoundingClientRect();
    const at = from + (((moved.clientX - box.left) * (width / box.width) - LEFT) / (width - LEFT)) * span;
    const column = columns[Math.floor(((at - from) / span) * columns.length)];
    if (!column) return;
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.setAttribute("visibility", "visible");
    const near = events.filter((event) => Math.abs(event.at - at) < span / 60).map((event) => event.text);
    tell(new Date(at * 1000), column, near);
  });
  const item = (kind, text) => element("span", { class: kind }, text);
  place.replaceChildren(svg, element("div", { class: "legend" }, item("l-good", "in time"), item("l-late", "late"), item("l-bad", "not answered"), events.length > 0 ? item("l-event", "gpulets changed") : null));
}

function tell(when, column, events) {
  byId("chart-text").textContent = `${when.toLocaleTimeString("en-GB")}: ${short(column.in_time)}/s in time, ${short(column.late)} late, ${short(column.unanswered)} not answered, ${short(column.queued)} waiting${events.length ? `. ${events.join("; ")}` : ""}`;
}

/** Mean seconds by column. */
function group(known, from, span, most) {
  const count = Math.min(span, Math.max(30, most));
  const columns = Array.from({ length: count }, () => ({ in_time: 0, late: 0, unanswered: 0, queued: 0, seconds: 0 }));
  for (const second of known) {
    const column = columns[Math.min(count - 1, Math.floor(((second.at - from - 1) / span) * count))];
    for (const key of ["in_time", "late", "unanswered", "queued"]) column[key] += second[key];
    column.seconds += 1;
  }
  for (const column of columns) if (column.seconds > 0) for (const key of ["in_time", "late", "unanswered", "queued"]) column[key] /= column.seconds;
  return columns;
}

function changes(partition) {
  const ended = (partition?.history ?? []).filter((entry) => entry.kind === "ended" || entry.kind === "switched");
  const decided = (partition?.decisions ?? []).map((entry) => ({ at: Date.parse(entry.at) / 1000, text: `${entry.model}: ${short(entry.from)} to ${short(entry.to)} rows/s: ${entry.reason}` }));
  return [...ended.map((entry) => ({ at: Date.parse(entry.at) / 1000, text: entry.message })), ...decided];
}
