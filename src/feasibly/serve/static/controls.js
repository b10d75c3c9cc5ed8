// Sliders and switches. They change the state and say so; nothing here asks the server.
import { by, figure, make } from "./words.js";
import { inputs } from "./state.js";

const SHOWN = 80;

function slider({ id, label, value, low, high, step, words, moved, input }) {
  const output = make("output", { for: id }, words(value));
  const range = make("input", { type: "range", id, min: low, max: high, step, value, "aria-valuetext": words(value) });
  const box = make("div", { class: moved(value) ? "slider moved" : "slider" }, make("label", { for: id }, label), output, range);
  range.addEventListener("input", () => {
    const now = Number(range.value);
    output.textContent = words(now);
    range.setAttribute("aria-valuetext", words(now));
    box.classList.toggle("moved", moved(now));
    input(now);
  });
  return box;
}

const share = (value) => `${(100 * value).toFixed(1)} %`;

export class Controls {
  constructor(changed) {
    this.changed = changed;
    by("switch-filter").addEventListener("input", () => this.switches());
    by("input-filter").addEventListener("input", () => this.all());
  }

  show(model, state) {
    this.model = model;
    this.state = state;
    const grid = model.grid;
    for (const id of ["loads-card", "picked-card"]) by(id).hidden = !grid;
    by("inputs-card").hidden = Boolean(grid);
    const switched = grid && ["branch", "generator"].some((kind) => model.inputs[kind]);
    by("switches-card").hidden = !switched;
    if (grid) {
      this.system();
      this.areas();
      by("buses").replaceChildren(...grid.bus.id.map((id) => make("option", { value: id })));
    } else {
      this.all();
    }
    if (switched) this.switches();
  }

  system() {
    const { state, model } = this;
    const reach = model.reach;
    by("system").replaceChildren(slider({
      id: "system-load", label: "Whole system", value: state.system, low: 1 - reach, high: 1 + reach, step: 0.005,
      words: share, moved: (v) => v !== 1, input: (v) => { state.system = v; this.changed(); },
    }));
  }

  areas() {
    const { state, model } = this;
    const { names, from } = model.grid.areas;
    by("areas-from").textContent = from === "file" ? "" : "The file names no areas, or one alone; these were found in the network.";
    by("areas").replaceChildren(...names.map((name, k) => slider({
      id: `area-${k}`, label: name, value: state.areas[name] ?? 1, low: 1 - model.reach, high: 1 + model.reach, step: 0.005,
      words: share, moved: (v) => v !== 1, input: (v) => { state.areas[name] = v; this.changed(); },
    })));
  }

  // One bus: sliders for its loads, what its generators do, and its branches.
  bus(i, seen) {
    const { state, model } = this;
    const { grid } = model;
    const where = by("picked");
    by("picked-title").textContent = i < 0 ? "One bus" : `Bus ${grid.bus.id[i]}`;
    if (i < 0) {
      where.replaceChildren(make("p", { class: "hint" }, "Choose a bus on the map or by its number to move its load."));
      return;
    }
    const x = inputs(state, model);
    const parts = [];
    grid.load.bus.forEach((bus, k) => {
      if (bus !== i) return;
      for (const [kind, what, unit] of [["pd", "Active load", "MW"], ["qd", "Reactive load", "Mvar"]]) {
        const at = model.inputs[kind][0] + k;
        const name = model.input_names[at];
        const usual = model.nominal[at];
        const far = Math.max(model.reach * Math.abs(usual), 1e-6);
        if (usual === 0) continue;
        parts.push(slider({
          id: `one-${name}`, label: what, value: x[at], low: usual - 1.5 * far, high: usual + 1.5 * far, step: far / 100,
          words: (v) => `${figure(v * grid.base_mva, 4)} ${unit}`, moved: () => name in state.set,
          input: (v) => { state.set[name] = v; this.changed(); },
        }));
      }
    });
    if (!parts.length) parts.push(make("p", { class: "hint" }, "No load here."));
    else if (Object.keys(state.set).length) {
      parts.push(make("button", { type: "button", onclick: () => { state.set = {}; this.changed(); this.bus(i, seen); } }, "Let go of single loads"));
    }
    this.now = make("div", {});
    parts.push(this.now);
    where.replaceChildren(...parts);
    this.about(i, seen);
  }

  // What the answer says of that bus, without touching the sliders under somebody's hand.
  about(i, seen) {
    if (!this.now || i < 0 || !seen || !seen.bus) return;
    const { grid } = this.model;
    const lines = [["Voltage", `${figure(seen.bus.vm[i], 4)} p.u. of ${grid.bus.vmin[i]}–${grid.bus.vmax[i]}`]];
    if (seen.bus.price) lines.push(["Price", `${figure(seen.bus.price[i], 5)} $/MWh`]);
    grid.generator.bus.forEach((bus, k) => {
      if (bus === i) lines.push([`Unit ${grid.generator.id[k]}`, `${figure(seen.generator.pg[k], 4)} MW of ${figure(grid.generator.pmin[k] * grid.base_mva, 4)}–${figure(grid.generator.pmax[k] * grid.base_mva, 4)}`]);
    });
    grid.branch.id.forEach((id, k) => {
      const [f, t] = [grid.branch.from[k], grid.branch.to[k]];
      if (f === i || t === i) lines.push([`To ${grid.bus.id[f === i ? t : f]}`, `${figure(f === i ? seen.branch.p[k] : -seen.branch.p[k], 3)} MW, ${figure(seen.branch.loading[k], 3)} %`]);
    });
    this.now.replaceChildren(make("dl", {}, ...lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  }

  switches() {
    const { state, model } = this;
    const { grid } = model;
    const wanted = by("switch-filter").value.trim().toLowerCase();
    const all = [];
    if (model.inputs.branch) grid.branch.id.forEach((id, k) => all.push([`branch:${id}`, `Line ${id}: ${grid.bus.id[grid.branch.from[k]]}–${grid.bus.id[grid.branch.to[k]]}`]));
    if (model.inputs.generator) grid.generator.id.forEach((id, k) => all.push([`generator:${id}`, `Unit ${id} at bus ${grid.bus.id[grid.generator.bus[k]]}`]));
    const found = all.filter(([name, words]) => state.off[name] || words.toLowerCase().includes(wanted));
    found.sort((a, b) => Boolean(state.off[b[0]]) - Boolean(state.off[a[0]]));
    const out = Object.keys(state.off).length;
    by("switches-hint").textContent = `${out ? `${out} out of service. ` : ""}A click on a line of the map switches it, too.`;
    by("switches").replaceChildren(...found.slice(0, SHOWN).map(([name, words]) => {
      const on = make("input", { type: "checkbox", checked: !state.off[name] });
      on.addEventListener("change", () => this.toggle(name));
      return make("label", { class: state.off[name] ? "switch off" : "switch", "data-switch": name }, on, words);
    }));
  }

  toggle(name) {
    if (this.state.off[name]) delete this.state.off[name];
    else this.state.off[name] = true;
    this.switches();
    this.changed();
  }

  // A problem without a grid: every input by name.
  all() {
    const { state, model } = this;
    const wanted = by("input-filter").value.trim().toLowerCase();
    const names = model.input_names.filter((name) => name.toLowerCase().includes(wanted));
    const shown = names.slice(0, SHOWN).map((name) => {
      const at = model.position.get(name);
      const [low, high, usual] = [model.low[at], model.high[at], model.nominal[at]];
      const room = (high - low) * 0.1 || 1;
      return slider({
        id: `input-${name}`, label: name, value: state.set[name] ?? usual, low: low - room, high: high + room, step: (high - low) / 200 || 0.01,
        words: (v) => figure(v, 4), moved: () => name in state.set, input: (v) => { state.set[name] = v; this.changed(); },
      });
    });
    if (names.length > SHOWN) shown.push(make("p", { class: "hint" }, `and ${names.length - SHOWN} more; type part of a name`));
    by("inputs").replaceChildren(...shown);
  }
}
