// What came back: the verdict, the promise, the proof, the ladder, the tables.
import { by, figure, make, percent, seconds, table } from "./words.js";
import { at, talk } from "./talk.js";

const VERDICTS = {
  OK: ["good", "Usable as it is"], VIOLATED: ["bad", "Breaks a constraint"], OUTSIDE: ["warn", "Outside the range learnt"],
  INFEASIBLE: ["bad", "No answer exists"], UNSOLVED: ["bad", "Not solved"], NOT_FINITE_INPUT: ["bad", "An input is no number"],
};
const worst = (seen) => Math.max(seen.max_equality ?? NaN, seen.max_inequality ?? NaN);

export function verdict(model, seen) {
  const [kind, words] = VERDICTS[seen.outcome] || ["bad", seen.outcome];
  by("verdict").className = kind;
  by("verdict").textContent = words;
  by("advice").textContent = seen.advice;
  const unit = model.grid ? " $/h" : "";
  const lines = [
    ["Cost", figure(seen.objective, 7) + unit, "big"],
    ["Answered by", seen.rung],
    ["Out of balance", figure(seen.max_equality, 2)],
    ["Beyond a limit", figure(seen.max_inequality, 2)],
    ["Time", seconds(seen.seconds.answer)],
  ];
  by("figures").replaceChildren(...lines.flatMap(([name, value, kind]) => [make("dt", {}, name), make("dd", { class: kind }, value)]));
  const said = Number.isFinite(seen.objective) ? `Cost ${figure(seen.objective, 7)}${unit}, largest violation ${figure(worst(seen), 2)}, ${seconds(seen.seconds.answer)}.` : "";
  return `${words}. ${said}`;
}

export function promise(model, state, seen) {
  const box = by("promise");
  if (!model.promise) {
    box.replaceChildren(make("p", { class: "hint" }, "This model carries no certificate. feasibly certify makes one."));
    return;
  }
  const lines = [];
  if (Number.isFinite(seen.gap_limit)) {
    lines.push(make("p", { class: "promise-line", id: "promised-gap" }, `With ${figure(100 * model.confidence)} % confidence, the cost is within ${percent(seen.gap_limit)} of the least possible.`));
  } else if (!model.promised.includes(state.answer)) {
    lines.push(make("p", { class: "promise-line" }, `Nothing is promised of ${state.answer}, only of ${model.promised.join(", ")}.`));
  } else {
    lines.push(make("p", { class: "promise-line worse" }, "No promise for this input."));
  }
  for (const warning of seen.warnings || []) lines.push(make("p", { class: "hint" }, warning));
  lines.push(make("details", {}, make("summary", {}, "The certificate in words"), ...model.sentences.map((each) => make("p", { class: "hint" }, (each.answer ? `${each.answer}: ` : "") + each.text))));
  box.replaceChildren(...lines);
}

export function proof(model, seen) {
  const box = by("proof");
  if (seen && Number.isFinite(seen.proven_gap_percent)) {
    const words = `${model.grid ? "No dispatch" : "Nothing"} that obeys the constraints costs less than ${figure(seen.lower_bound, 7)}; this answer is within ${percent(seen.proven_gap_percent)} of that.`;
    box.replaceChildren(make("p", { id: "proven" }, words));
  } else if (seen && "lower_bound" in seen) {
    box.replaceChildren(make("p", { id: "proven" }, "No bound was found for this input."));
  } else {
    box.replaceChildren(make("p", { class: "hint" }, "A lower bound on the cost, computed for this very input."));
  }
}

const gap = (cost, exact) => {
  const off = (100 * (cost - exact)) / Math.abs(exact);
  return Math.abs(off) < 1e-6 ? "0 %" : percent(off);
};
const cost = (row) => (row.outcome && !Number.isFinite(row.objective) ? make("span", { class: "worse" }, row.outcome.toLowerCase()) : figure(row.objective, 7));
const RUNGS = [["mean", "as learnt"], ["conditioned", "obeys the constraints"], ["polished", "the optimum itself"], ["solved", "the solver of labels"], ["ipopt", "solver, cold start"]];

// Ask every rung for the same input, one after the other so that their times are their own.
export class Ladder {
  constructor() { this.run = 0; this.warm = new Set(); }

  clear() { this.run++; by("ladder").replaceChildren(make("p", { class: "hint" }, "Each rung costs more and promises more.")); }

  async compare(model, state, x) {
    const mine = ++this.run;
    const found = {};
    this.draw(model, state, found);
    for (const [rung] of RUNGS) {
      const once = async () => {
        if (rung === "ipopt") {
          const said = await talk(at(model.name, "solver"), { x });
          return { objective: said.objective, violation: said.violation, seconds: said.seconds, outcome: said.outcome };
        }
        const said = await talk(at(model.name, "look"), { x, answer: rung });
        return { objective: said.objective, violation: worst(said), seconds: said.seconds.answer, outcome: said.outcome };
      };
      try {
        const key = `${model.name} ${rung}`;
        found[rung] = await once();
        if (mine !== this.run) return;
        if (!this.warm.has(key)) { this.warm.add(key); this.draw(model, state, found); found[rung] = await once(); }
      } catch (error) {
        found[rung] = { error: error.message };
      }
      if (mine !== this.run) return;
      this.draw(model, state, found);
    }
  }

  draw(model, state, found) {
    const exact = [found.ipopt, found.solved].find((each) => each && Number.isFinite(each.objective));
    const rows = RUNGS.map(([rung, words]) => ({ rung, words, ...(found[rung] || {}) }));
    by("ladder").replaceChildren(table([
      ["", (row) => make("span", { title: row.words }, row.rung === "ipopt" ? "IPOPT" : row.rung)],
      [model.grid ? "cost $/h" : "cost", (row) => (row.error ? make("span", { class: "worse", title: row.error }, "no answer") : cost(row)), true],
      ["gap", (row) => (exact && Number.isFinite(row.objective) ? gap(row.objective, exact.objective) : "–"), true],
      ["violation", (row) => make("span", { class: row.violation > 1e-4 ? "worse" : "" }, figure(row.violation, 2)), true],
      ["time", (row) => (Number.isFinite(row.seconds) ? seconds(row.seconds) : "…"), true],
    ], rows, { label: "The ladder of answers beside the solver", each: (line, row) => { line.id = `rung-${row.rung}`; if (row.rung === state.answer) line.className = "chosen"; } }));
  }
}

// ---- tables ----

const MOST = 100;

const nothing = () => make("p", { class: "hint" }, "There is no answer to this input, so there is nothing to show.");

export function tables(model, state, seen, { pick }) {
  const { grid } = model;
  for (const kind of ["bus", "branch", "generator"]) by(`tab-${kind}`).hidden = !grid;
  if (!seen.y) { for (const kind of ["binding", "bus", "branch", "generator"]) put(kind, nothing()); return; }
  binding(model, seen, pick);
  if (!grid || !seen.bus) return;
  const link = (bus) => (line, row) => {
    line.className = "link";
    line.tabIndex = 0;
    line.addEventListener("click", () => pick(bus(row)));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(bus(row)); });
  };
  const ranked = (count, key) => Array.from({ length: count }, (_, i) => i).sort((a, b) => key(b) - key(a)).slice(0, MOST).map((i) => ({ i }));
  const tight = (i) => { const { vmin, vmax } = grid.bus; const s = (seen.bus.vm[i] - vmin[i]) / (vmax[i] - vmin[i] || 1); return Math.abs(s - 0.5); };
  const note = (count) => (count > MOST ? make("p", { class: "hint" }, `The first ${MOST} of ${count}.`) : null);
  put("bus", note(grid.bus.id.length), table([
    ["bus", ({ i }) => grid.bus.id[i]], ["voltage p.u.", ({ i }) => figure(seen.bus.vm[i], 4), true], ["angle °", ({ i }) => figure(seen.bus.va[i], 3), true],
    ["price $/MWh", ({ i }) => figure(seen.bus.price && seen.bus.price[i], 5), true], ["violation", ({ i }) => figure(seen.bus.violation[i], 2), true],
  ], ranked(grid.bus.id.length, tight), { label: "Buses, those nearest to a voltage limit first", each: link(({ i }) => i) }));
  put("branch", note(grid.branch.id.length), table([
    ["branch", ({ i }) => grid.branch.id[i]], ["from", ({ i }) => grid.bus.id[grid.branch.from[i]], true], ["to", ({ i }) => grid.bus.id[grid.branch.to[i]], true],
    ["MW", ({ i }) => figure(seen.branch.p[i], 4), true], ["loading %", ({ i }) => figure(seen.branch.loading[i], 3), true], ["violation", ({ i }) => figure(seen.branch.violation[i], 2), true],
  ], ranked(grid.branch.id.length, (i) => seen.branch.loading[i] ?? -1), { label: "Branches, the most loaded first", each: link(({ i }) => grid.branch.from[i]) }));
  put("generator", note(grid.generator.id.length), table([
    ["unit", ({ i }) => grid.generator.id[i]], ["bus", ({ i }) => grid.bus.id[grid.generator.bus[i]], true], ["MW", ({ i }) => figure(seen.generator.pg[i], 5), true],
    ["range MW", ({ i }) => `${figure(grid.generator.pmin[i] * grid.base_mva, 4)}–${figure(grid.generator.pmax[i] * grid.base_mva, 4)}`, true], ["Mvar", ({ i }) => figure(seen.generator.qg[i], 4), true],
  ], ranked(grid.generator.id.length, (i) => seen.generator.pg[i]), { label: "Generators, the largest first", each: link(({ i }) => grid.generator.bus[i]) }));
}

function put(kind, ...parts) { by(`panel-${kind}`).replaceChildren(...parts.filter(Boolean)); }

const LIMITS = { pg: "active power", qg: "reactive power", vm: "voltage", apparent: "flow", current: "current", angle: "angle difference" };
const UNITS = { pg: "$/MWh", qg: "$/Mvarh", apparent: "$/MVAh", current: "$/MVAh", vm: "$/h per p.u.", angle: "$/h per rad" };
const ENDS = { from: ", from end", to: ", to end", minimum: " minimum", maximum: " maximum", "": "" };
const limitWords = (row) => (LIMITS[row.kind] || row.kind) + ENDS[row.end];

// What the cost would save if the limit were one unit wider; per MW rather than per unit of the grid's base.
function worth(row, grid) {
  if (!Number.isFinite(row.multiplier)) return "–";
  if (!grid) return figure(row.multiplier, 5);
  const perBase = ["pg", "qg", "apparent", "current"].includes(row.kind);
  return `${figure(perBase ? row.multiplier / grid.base_mva : row.multiplier, 4)} ${UNITS[row.kind] || ""}`;
}

function binding(model, seen, pick) {
  if (!seen.binding) return;
  if (!seen.binding.length) { put("binding", make("p", { class: "hint" }, "No limit binds.")); return; }
  const { grid } = model;
  const bus = (row) => {
    if (!grid) return -1;
    const k = grid[row.component] ? grid[row.component].id.indexOf(row.id) : -1;
    if (k < 0) return -1;
    return row.component === "bus" ? k : row.component === "branch" ? grid.branch.from[k] : grid.generator.bus[k];
  };
  put("binding", table([
    ["", (row) => `${row.component} ${row.id}`], ["limit", (row) => limitWords(row)], ["room left", (row) => figure(Math.max(row.slack, 0), 2), true],
    ["worth of one unit more", (row) => worth(row, grid), true],
  ], seen.binding, {
    label: "Limits that bind, the dearest first",
    each: (line, row) => {
      const i = bus(row);
      if (i < 0) return;
      line.className = "link";
      line.tabIndex = 0;
      line.addEventListener("click", () => pick(i));
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(i); });
    },
  }));
}

// A problem without a grid: every output between its bounds, with the promised interval where there is one.
export function outputs(model, seen) {
  by("outputs-box").hidden = Boolean(model.grid);
  if (model.grid) return;
  if (!seen.y) { by("outputs").replaceChildren(nothing()); return; }
  const rows = model.output_names.slice(0, 200).map((name, i) => ({ name, i }));
  const place = (v, i) => {
    const [low, high] = [model.lower[i] ?? Math.min(0, 2 * seen.y[i]), model.upper[i] ?? Math.max(1, 2 * seen.y[i])];
    return Math.min(100, Math.max(0, (100 * (v - low)) / (high - low || 1)));
  };
  by("outputs").replaceChildren(table([
    ["output", "name"], ["value", ({ i }) => figure(seen.y[i], 5), true],
    ["between", ({ i }) => `${figure(model.lower[i] ?? -Infinity, 3)} and ${figure(model.upper[i] ?? Infinity, 3)}`, true],
    ["", ({ i }) => {
      const mark = make("i");
      mark.style.left = `${place(seen.y[i], i)}%`;
      const bar = make("div", { class: "bar", role: "presentation" });
      if (seen.lower && Number.isFinite(seen.lower[i])) {
        const band = make("b");
        const [a, b] = [place(seen.lower[i], i), place(seen.upper[i], i)];
        band.style.left = `${a}%`;
        band.style.width = `${b - a}%`;
        bar.append(band);
      }
      bar.append(mark);
      return bar;
    }],
  ], rows, { label: "Outputs" }));
}
