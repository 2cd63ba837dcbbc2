// Calls of the server that served this page.

const KEY = "tessera-key";
let asking = null;

/** The body of an answer; an error with the server's own words if it refuses. */
export async function call(path, method = "GET", body = undefined) {
  for (;;) {
    const answer = await fetch(path, { method, headers: headers(), body: body === undefined ? undefined : JSON.stringify(body) });
    if (answer.ok) return answer.status === 204 ? null : text(await answer.text());
    const problem = await words(answer);
    if (answer.status !== 401 && answer.status !== 403) throw Object.assign(new Error(problem), { status: answer.status });
    if (method !== "GET" && answer.status === 403) throw new Error(problem);
    await askForKey(problem);
  }
}

/** Calls `each` with every event of a stream, until it ends. */
export async function follow(path, each) {
  const answer = await fetch(path, { headers: headers() });
  if (answer.status === 401 || answer.status === 403) {
    await askForKey(await words(answer));
    return;
  }
  if (!answer.ok) throw new Error(await words(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) each(JSON.parse(event.slice(6)));
  }
}

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { authorization: `Bearer ${key}` } : {};
}

function text(body) {
  return body === "" ? null : JSON.parse(body);
}

async function words(answer) {
  const body = await answer.text();
  try {
    return JSON.parse(body).error;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

function askForKey(problem) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key");
    const input = document.getElementById("key-text");
    document.getElementById("key-problem").textContent = sessionStorage.getItem(KEY) ? problem : "";
    dialog.addEventListener("close", () => {
      if (input.value) sessionStorage.setItem(KEY, input.value.trim());
      input.value = "";
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
