// The OpenAPI document as a page, with a form for every endpoint.
import { by, make, table } from "./words.js";

const follow = (schema, whole) => (schema && schema.$ref ? whole.components.schemas[schema.$ref.split("/").pop()] : schema);

function fields(schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, what]) => ({ name, kind: [what.type, what.enum && what.enum.join(", ")].flat().filter(Boolean).join(" or "), words: what.description || "" }));
  return rows.length ? table([["field", "name"], ["kind", "kind"], ["", "words"]], rows, { label: "Fields" }) : null;
}

function entry(path, verb, operation, whole, models) {
  const content = operation.requestBody && operation.requestBody.content;
  const kind = content && Object.keys(content)[0];
  const schema = content && follow(content[kind].schema, whole);
  const name = path.includes("{name}") ? make("select", {}, ...models.map((each) => make("option", { value: each }, each))) : null;
  const body = schema ? make("textarea", { "aria-label": "Body", spellcheck: "false" }) : null;
  if (body) body.value = typeof schema.example === "string" ? schema.example : JSON.stringify(schema.example ?? {}, null, 2);
  const reply = make("pre", { hidden: true, tabindex: "0" });
  const send = make("button", { type: "button" }, "Send");
  send.addEventListener("click", async () => {
    const headers = {};
    const token = sessionStorage.getItem("feasibly-token");
    if (token) headers.Authorization = `Bearer ${token}`;
    const options = { method: verb.toUpperCase(), headers };
    if (body) { options.body = body.value; headers["Content-Type"] = kind; }
    const answer = await fetch(path.replace("{name}", name ? encodeURIComponent(name.value) : ""), options);
    const text = await answer.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch { /* not JSON */ }
    reply.hidden = false;
    reply.textContent = `${answer.status}\n${shown.length > 20000 ? `${shown.slice(0, 20000)}\n...` : shown}`;
  });
  const codes = Object.entries(operation.responses).map(([code, what]) => ({ code, words: what.description }));
  return make("details", { class: "card path" }, make("summary", {}, make("span", { class: "verb" }, verb.toUpperCase()), make("code", {}, path), make("span", { class: "hint" }, operation.summary)),
    schema ? fields(schema) : null, table([["reply", "code"], ["", "words"]], codes, { label: "Replies" }),
    make("p", {}, name ? make("label", { class: "field" }, "name ", name) : "", " "), body, make("p", {}, send), reply);
}

const whole = await (await fetch("/openapi.json")).json();
by("about").textContent = whole.info.description;
const token = sessionStorage.getItem("feasibly-token");
const listed = await fetch("/models", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
const models = listed.ok ? (await listed.json()).models.map((each) => each.name) : [];
if (!listed.ok) by("status").textContent = "This server wants a token; open the page first and enter it there.";
for (const [path, verbs] of Object.entries(whole.paths)) {
  for (const [verb, operation] of Object.entries(verbs)) by("paths").append(entry(path, verb, operation, whole, models));
}
