// The last hour through the simulator, as it was and with something changed.
import { byId, element, ms, percent, short } from "./element.js";
import { call } from "./server.js";

export function listen() {
  const lanes = byId("if-lanes");
  lanes.addEventListener("input", () => (lanes.dataset.typed = "yes"));
  byId("what-if-form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
}

/** The number of lanes that the server has, until the visitor types another. */
export function lanes(count) {
  const input = byId("if-lanes");
  if (!input.dataset.typed && document.activeElement !== input) input.value = count;
}

async function ask() {
  const status = byId("if-status"), button = byId("if-ask");
  button.disabled = true;
  status.className = "";
  status.textContent = "Simulating …";
  try {
    const question = { load: Number(byId("if-load").value), lanes: Number(byId("if-lanes").value) };
    if (byId("if-policy").value) question.policy = byId("if-policy").value;
    const [model, objective] = [byId("if-model").value.trim(), byId("if-objective").value.trim()];
    if (model && objective) question.objectives = { [model]: objective };
    show(await call("/v2/what-if", "POST", question));
  } catch (problem) {
    status.className = "bad";
    status.textContent = problem.message;
  } finally {
    button.disabled = false;
  }
}

function show(answer) {
  const of = answer.as_it_is, to = answer.changed;
  byId("if-status").textContent = `${short(answer.requests)} requests of the last ${span(answer.seconds)}. Lanes busy ${percent(of.busy)} as it is, ${percent(to.busy)} changed.`;
  const all = { name: "all models", as_it_is: of, changed: to };
  byId("if-rows").replaceChildren(...[...answer.models, all].map(row));
  byId("if-notes").replaceChildren(...answer.notes.map((note) => element("li", {}, note)));
  byId("if-result").hidden = false;
}

const span = (seconds) => (seconds >= 120 ? `${Math.round(seconds / 60)} minutes` : `${seconds} s`);

function row({ name, measured, as_it_is: of, changed: to }) {
  const worse = to.attainment < of.attainment - 0.005 ? "number bad" : to.attainment > of.attainment + 0.005 ? "number good" : "number";
  const cell = (label, kind, text) => element("td", { "data-name": label, class: kind }, text);
  return element(
    "tr", {},
    element("th", { scope: "row" }, name),
    cell("Measured", "number", percent(measured)),
    cell("As it is", "number", percent(of.attainment)),
    cell("Changed", worse, percent(to.attainment)),
    cell("p99 as it is", "number", ms(of.p99_ms)),
    cell("p99 changed", "number", ms(to.p99_ms)),
  );
}
