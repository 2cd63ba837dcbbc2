// Elements without markup in strings: what a client names (models, ids, reasons) is never read as HTML.

/** An element with attributes and children. Attributes that are null are left out; functions listen to events. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return fill(made, attributes, children);
}

/** The same in SVG. */
export function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  return fill(made, attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A bar up to a part of its width, 0 to 1, and from another. Widths are set by property, because the page forbids inline styles in markup. */
export function bar(part, kind, label, from = 0) {
  const fill = element("i", { class: kind });
  const [start, end] = [from, part].map((value) => 100 * Math.min(1, Math.max(0, value)));
  fill.style.left = `${start}%`;
  fill.style.width = `${Math.max(0, end - start)}%`;
  return element("span", { class: "bar", role: "img", "aria-label": label }, fill);
}

/** A number with about three digits. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: digits });
}

export const ms = (value) => (value === null || value === undefined ? "–" : `${short(value)} ms`);
export const percent = (part) => (part === null || part === undefined ? "–" : `${(100 * part).toFixed(part > 0.999 && part < 0.9999 ? 2 : 1)} %`);
export const byId = (id) => document.getElementById(id);
