// Calls of the server that served this page.

const KEY = "tessera-key";
let asking = null;

/** The body of an answer; an error with the server's own words if it refuses. */
export async function call(path, method = "GET", body = undefined) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const answer = await fetch(path, { method, headers: headers(key), body: body === undefined ? undefined : JSON.stringify(body) });
    if (answer.ok) return answer.status === 204 ? null : text(await answer.text());
    const problem = await words(answer);
    if (answer.status !== 401 && answer.status !== 403) throw Object.assign(new Error(problem), { status: answer.status });
    if (method !== "GET" && answer.status === 403) throw new Error(problem);
    await askForKey(problem, key);
  }
}

/** Calls `each` with every event of a stream, until it ends. */
export async function follow(path, each) {
  const key = sessionStorage.getItem(KEY);
  const answer = await fetch(path, { headers: headers(key) });
  if (answer.status === 401 || answer.status === 403) {
    await askForKey(await words(answer), key);
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

function headers(key) {
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

/** Asks for another key than the one that was refused, unless there is one already: other calls may still end with the old one. */
function askForKey(problem, refused) {
  if (sessionStorage.getItem(KEY) !== refused) return Promise.resolve();
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
