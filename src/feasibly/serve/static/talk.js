// Asking the server, with the token where there is one.
import { by } from "./words.js";

const KEY = "feasibly-token";

async function token() {
  const dialog = by("token-dialog");
  if (!dialog.open) dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  sessionStorage.setItem(KEY, by("token").value.trim());
}

export async function talk(address, body, { text = false, signal } = {}) {
  for (let attempt = 0; ; attempt++) {
    const headers = {};
    const known = sessionStorage.getItem(KEY);
    if (known) headers.Authorization = `Bearer ${known}`;
    const options = { headers, signal };
    if (body !== undefined) {
      options.method = "POST";
      options.body = text ? body : JSON.stringify(body);
      headers["Content-Type"] = text ? "text/csv" : "application/json";
    }
    const reply = await fetch(address, options);
    if (reply.status === 401 && attempt < 5) {
      await token();
      continue;
    }
    const said = await reply.json().catch(() => ({ error: `the server replied ${reply.status}` }));
    if (!reply.ok) throw Object.assign(new Error(said.error || `the server replied ${reply.status}`), { status: reply.status });
    return said;
  }
}

export const at = (name, what) => `/models/${encodeURIComponent(name)}/${what}`;
