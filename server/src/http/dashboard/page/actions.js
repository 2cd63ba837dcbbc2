// What an operator can change, each after a confirmation.
import { byId } from "./element.js";
import { call } from "./server.js";

const ACTIONS = {
  load: { path: (model) => `/v2/repository/models/${encodeURIComponent(model)}/load`, text: (model) => `Load or reload model ${model}. The old version serves until the new one is ready.`, needsModel: true },
  unload: { path: (model) => `/v2/repository/models/${encodeURIComponent(model)}/unload`, text: (model) => `Unload model ${model}. Its clients get errors from then on.`, needsModel: true },
  promote: { path: (model) => `/v2/models/${encodeURIComponent(model)}/rollout/promote`, text: (model) => `Promote the canary of ${model}: it gets all requests now, before its bake time is over.`, needsModel: true },
  rollback: { path: (model) => `/v2/models/${encodeURIComponent(model)}/rollout/rollback`, text: (model) => `Roll back the canary of ${model}: the version before it gets all requests.`, needsModel: true },
  freeze: { path: () => "/v2/partition/freeze", text: () => "Freeze the gpulets: they do not follow the load until they are thawed." },
  thaw: { path: () => "/v2/partition/thaw", text: () => "Thaw the gpulets: they follow the load again. An operator plan ends." },
};

export function listen(after) {
  for (const button of document.querySelectorAll("[data-action]")) button.addEventListener("click", () => act(button.dataset.action, after));
}

async function act(name, after) {
  const action = ACTIONS[name];
  const model = byId("act-model").value.trim();
  const result = byId("action-result");
  if (action.needsModel && !model) {
    result.textContent = "Name a model first.";
    byId("act-model").focus();
    return;
  }
  if (!(await confirmed(action.text(model)))) return;
  result.className = "";
  result.textContent = "…";
  try {
    const done = await call(action.path(model), "POST");
    result.className = "good";
    result.textContent = `Done: ${name}${action.needsModel ? ` ${model}` : ""}${done?.changes?.length ? `: ${done.changes.join("; ")}` : ""}`;
  } catch (problem) {
    result.className = "bad";
    result.textContent = problem.message;
  }
  after();
}

// The answer is taken from the form, because the browser reports `close` later, maybe after the dialog is open again.
function confirmed(text) {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = text;
  dialog.showModal();
  return new Promise((resolve) => {
    const listening = new AbortController();
    const answer = (yes) => {
      listening.abort();
      resolve(yes);
    };
    dialog.addEventListener("submit", (event) => answer(event.submitter?.value === "yes"), listening);
    dialog.addEventListener("close", () => dialog.open || answer(false), listening);
  });
}
