// Families: which variants answer, and how good the answers are.
import { bar, byId, element, percent, short } from "./element.js";

const quality = (value) => (value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 4 }));

export function families(view) {
  const known = view.families ?? [];
  byId("families").hidden = byId("families-link").hidden = known.length === 0;
  byId("family-cards").replaceChildren(...known.map(card));
}

function card(family) {
  const all = family.variants.reduce((sum, variant) => sum + variant.rate, 0);
  const best = family.variants.find((variant) => Math.abs(variant.quality - family.level) < 1e-6);
  const top = Math.max(...family.variants.map((variant) => variant.quality));
  const lowered = family.level < top - 1e-6;
  // The level is decided for each request, so it says nothing while there are none.
  const level = `requests get variants up to ${best?.name ?? "quality"} (${quality(family.level)})`;
  const rows = family.variants.flatMap((variant) => {
    const part = all > 0 ? variant.rate / all : 0;
    const lanes = variant.lanes === 1 ? "1 lane" : `${variant.lanes} lanes`;
    return [
      element("span", {}, variant.name),
      bar(part, "", `${percent(part)} of the answers`),
      element("span", {}, `${percent(part)}, quality ${quality(variant.quality)}, ${lanes}`),
    ];
  });
  return element("div", { class: "card" },
    element("h3", {}, family.name),
    element("p", { class: all === 0 ? "soft" : lowered ? "late" : "good" }, `${all === 0 ? "No answers in the last ten seconds" : `${lowered ? "Lowered" : "Full quality"}: ${level}`}. It fell ${short(family.falls)} times and rose ${short(family.rises)} times.`),
    element("p", {}, `Mean quality of the answers: ${quality(family.quality)}; at least ${quality(family.quality_min)} is asked for.`),
    element("div", { class: "rows" }, ...rows));
}
