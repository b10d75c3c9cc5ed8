// The page: state, server and view held together.
import { by, make } from "./words.js";
import { at, talk } from "./talk.js";
import { fresh, fromAddress, inputs, LONGEST, toAddress } from "./state.js";
import { PALETTES, STEPS } from "./colours.js";
import { GridMap } from "./map.js";
import { Controls } from "./controls.js";
import { Files } from "./files.js";
import { Ladder, outputs, promise, proof, tables, verdict } from "./results.js";

const CALM = 220; // milliseconds without a change before the slower questions are asked
const AGAIN = 4000; // milliseconds until a proof is asked for again, while what it needs is being made
const SMALL = 300; // buses up to which the ladder is compared by itself

let state = fromAddress(location.hash);
let model = null;
let seen = null;
let proving = 0;
let busy = false, dirty = false, calm = 0, generation = 0;

const controls = new Controls(() => changed());
const ladder = new Ladder();
const files = new Files((x) => useRow(x));
const map = new GridMap(by("map"), { picked: (i) => pick(i), toggled: (i) => toggleBranch(i) });

// For tests, and for whoever is curious: what is shown, and how long frames took to draw.
window.feasibly = { get state() { return state; }, get seen() { return seen; }, get model() { return model; }, map, files, settled: 0 };

const status = (words, bad = false) => { by("status").textContent = words; by("status").classList.toggle("bad", bad); };

async function start() {
  const { models, loading } = await talk("/models");
  if (!models.length || (state.model && loading.includes(state.model))) { status("Models are being loaded; this page tries again by itself."); setTimeout(guarded(start), 1000); return; }
  by("model").replaceChildren(...models.map((each) => make("option", { value: each.name }, `${each.name}${each.buses ? ` (${each.buses} buses)` : ""}`)));
  await open(models.some((each) => each.name === state.model) ? state.model : models[0].name);
}

async function open(name) {
  const mine = ++generation;
  status(`Opening ${name} ...`);
  const found = await talk(at(name, "page"));
  if (mine !== generation) return;
  if (state.model !== name) state = { ...fresh(name), answer: state.answer, colour: state.colour };
  model = found;
  model.position = new Map(model.input_names.map((each, i) => [each, i]));
  const spread = Math.max(...model.nominal.map((v, i) => (v ? Math.abs((model.high[i] - v) / v) : 0)).slice(0, 50));
  model.reach = Math.min(0.9, Math.max(0.05, 1.5 * (spread || 0.2)));
  state.model = name;
  seen = null;
  by("model").value = name;
  by("answer").value = state.answer;
  document.title = `${name} – feasibly`;
  const grid = model.grid;
  by("map-box").hidden = !grid;
  const radio = document.querySelector(`input[name=colour][value="${CSS.escape(state.colour)}"]`);
  if (radio) radio.checked = true; else state.colour = "voltage";
  map.colour = state.colour;
  map.chosen = -1;
  controls.show(model, state);
  files.show(model, state);
  ladder.clear();
  if (grid) {
    map.show(grid);
    const how = grid.placed === "coordinates" ? "Drawn by the file's coordinates." : "The file has no coordinates; nearby buses are drawn near each other.";
    by("map-note").textContent = `${grid.bus.id.length} buses, ${grid.branch.id.length} branches, ${grid.generator.id.length} generators (squares). ${how} Drag to move, wheel or + and - to zoom, 0 for all of it.`;
    if (state.pick !== null) pick(grid.bus.id.indexOf(Number(state.pick)), false);
    else controls.bus(-1);
  }
  changed();
}

// ---- asking ----

function changed() {
  dirty = true;
  clearTimeout(calm);
  clearTimeout(proving);
  remember();
  if (!busy) ask();
}

async function ask() {
  busy = true;
  const mine = generation;
  while (dirty && mine === generation) {
    dirty = false;
    try {
      const found = await talk(at(model.name, "look"), { x: inputs(state, model), answer: state.answer });
      if (mine !== generation) break;
      seen = found;
      draw();
    } catch (error) {
      status(error.message, true);
    }
  }
  busy = false;
  if (mine !== generation) { if (dirty) ask(); return; }
  clearTimeout(calm);
  calm = setTimeout(settle, CALM);
}

// Nobody has moved anything for a moment: what binds, what is promised, and the ladder.
async function settle(prove = false) {
  const mine = generation;
  const x = inputs(state, model);
  try {
    const question = { x, answer: state.answer, promise: true, full: true };
    if (prove) { question.prove = true; by("prove").disabled = true; by("proof").textContent = "Proving ..."; }
    const found = await talk(at(model.name, "look"), question);
    if (mine !== generation || dirty || busy) return;
    seen = found;
    draw();
    tables(model, state, seen, { pick });
    promise(model, state, seen);
    proof(model, seen);
    window.feasibly.settled++;
    if (!prove && (!model.grid || model.grid.bus.id.length <= SMALL)) await ladder.compare(model, state, x);
  } catch (error) {
    if (prove) by("proof").textContent = error.message;
    if (prove && error.status === 503) proving = setTimeout(() => { if (mine === generation && !dirty && !busy) settle(true); }, AGAIN);
    else status(error.message, true);
  } finally {
    by("prove").disabled = false;
  }
}

function draw() {
  status(verdict(model, seen));
  outputs(model, seen);
  if (!model.grid) return;
  map.seen = seen;
  map.off = new Set(Object.keys(state.off).filter((name) => name.startsWith("branch:")).map((name) => Number(name.slice(7))));
  map.draw();
  legend();
  controls.about(map.chosen, seen);
  const price = document.querySelector("input[name=colour][value=price]");
  price.disabled = Boolean(seen.bus && !seen.bus.price);
  by("map").setAttribute("aria-label", `The grid: ${model.grid.bus.id.length} buses coloured by ${state.colour}. ${by("status").textContent} The tables below hold the numbers.`);
}

function legend() {
  requestAnimationFrame(() => {
    const painted = map.painted;
    if (!painted) return;
    by("low").textContent = painted.low;
    by("high").textContent = painted.high;
    const pen = by("scale").getContext("2d");
    PALETTES[state.colour].forEach((colour, i) => { pen.fillStyle = colour; pen.fillRect((i * 120) / STEPS, 0, 120 / STEPS + 1, 10); });
  });
}

// ---- doing ----

function remember() {
  const address = toAddress(state);
  const fits = address.length <= LONGEST;
  by("share").disabled = !fits;
  by("share").title = fits ? "Copy an address that shows this very state" : "Too many single inputs were set for an address";
  if (fits) history.replaceState(null, "", address);
}

function pick(i, move = true) {
  if (!model.grid || i < 0) return;
  map.chosen = i;
  state.pick = String(model.grid.bus.id[i]);
  controls.bus(i, seen);
  if (move) map.centre(i); else map.draw();
  remember();
}

function toggleBranch(i) {
  const id = model.grid.branch.id[i];
  if (model.inputs.branch) controls.toggle(`branch:${id}`);
  else pick(model.grid.branch.from[i]);
}

function useRow(x) {
  state.system = 1;
  state.areas = {};
  state.set = Object.fromEntries(x.map((v, i) => [model.input_names[i], v]).filter(([, v], i) => v !== null && v !== model.nominal[i]));
  controls.show(model, state);
  if (map.chosen >= 0) controls.bus(map.chosen, seen);
  changed();
}

function choose(tab) {
  for (const each of by("tabs").querySelectorAll("[role=tab]")) {
    const on = each === tab;
    each.setAttribute("aria-selected", on);
    each.tabIndex = on ? 0 : -1;
    by(each.getAttribute("aria-controls")).hidden = !on;
  }
}

const guarded = (work) => (...given) => Promise.resolve(work(...given)).catch((error) => status(error.message, true));

by("model").addEventListener("change", (event) => guarded(open)(event.target.value));
by("answer").addEventListener("change", (event) => { state.answer = event.target.value; changed(); });
by("colours").addEventListener("change", (event) => {
  state.colour = map.colour = event.target.value;
  map.draw();
  legend();
  remember();
});
by("reset").addEventListener("click", () => guarded(async () => {
  state = { ...fresh(state.model), answer: state.answer, colour: state.colour };
  await open(state.model);
})());
by("share").addEventListener("click", guarded(async () => {
  remember();
  try { await navigator.clipboard.writeText(location.href); status("The address of this state is in the clipboard."); } catch { status(`The address of this state: ${location.href}`); }
}));
by("closer").addEventListener("click", () => map.zoom(1.4));
by("farther").addEventListener("click", () => map.zoom(1 / 1.4));
by("whole").addEventListener("click", () => map.whole());
by("find-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const i = model.grid.bus.id.indexOf(Number(by("find").value));
  if (i >= 0) pick(i); else status(`There is no bus ${by("find").value}.`, true);
});
by("prove").addEventListener("click", () => settle(true));
by("compare").addEventListener("click", guarded(() => ladder.compare(model, state, inputs(state, model))));
by("tabs").addEventListener("click", (event) => { if (event.target.role === "tab") choose(event.target); });
by("tabs").addEventListener("keydown", (event) => {
  const shown = [...by("tabs").querySelectorAll("[role=tab]")].filter((each) => !each.hidden);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = shown[(shown.indexOf(document.activeElement) + step + shown.length) % shown.length];
  choose(next);
  next.focus();
});
window.addEventListener("hashchange", () => { state = fromAddress(location.hash); guarded(open)(state.model || by("model").value); });

guarded(start)();
