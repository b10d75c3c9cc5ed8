// What is being looked at: a small object that an address can hold, and the inputs that follow from it.

export const fresh = (model) => ({ model, answer: "conditioned", colour: "voltage", system: 1, areas: {}, set: {}, off: {}, pick: null });

const short = (value) => String(Number(value.toPrecision(6)));
export const LONGEST = 6000;

export function toAddress(state) {
  const said = new URLSearchParams();
  said.set("model", state.model);
  if (state.answer !== "conditioned") said.set("answer", state.answer);
  if (state.colour !== "voltage") said.set("colour", state.colour);
  if (state.system !== 1) said.set("system", short(state.system));
  for (const [name, value] of Object.entries(state.areas)) if (value !== 1) said.set(`area.${name}`, short(value));
  for (const [name, value] of Object.entries(state.set)) said.set(`set.${name}`, short(value));
  const off = Object.keys(state.off);
  if (off.length) said.set("off", off.join(" "));
  if (state.pick !== null) said.set("bus", state.pick);
  return `#${said}`;
}

export function fromAddress(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const state = fresh(said.get("model"));
  const number = (text, otherwise) => (text !== null && text !== "" && Number.isFinite(Number(text)) ? Number(text) : otherwise);
  state.answer = said.get("answer") || "conditioned";
  state.colour = said.get("colour") || "voltage";
  state.system = number(said.get("system"), 1);
  for (const [key, value] of said) {
    if (key.startsWith("area.")) state.areas[key.slice(5)] = number(value, 1);
    if (key.startsWith("set.") && number(value, null) !== null) state.set[key.slice(4)] = Number(value);
  }
  for (const name of (said.get("off") || "").split(" ")) if (name) state.off[name] = true;
  state.pick = said.get("bus");
  return state;
}

// The inputs: as usual, times the system, times the area; then what was set by hand; then what is switched off.
export function inputs(state, model) {
  const x = model.nominal.slice();
  const grid = model.grid;
  if (grid) {
    for (const kind of ["pd", "qd"]) {
      const [start, stop] = model.inputs[kind] || [0, 0];
      for (let i = start; i < stop; i++) {
        const area = grid.areas.names[grid.bus.area[grid.load.bus[i - start]]];
        x[i] *= state.system * (state.areas[area] ?? 1);
      }
    }
  }
  for (const [name, value] of Object.entries(state.set)) {
    const i = model.position.get(name);
    if (i !== undefined) x[i] = value;
  }
  for (const name of Object.keys(state.off)) {
    const [kind, id] = name.split(":");
    const range = model.inputs[kind];
    const i = grid && range ? grid[kind].id.indexOf(Number(id)) : -1;
    if (i >= 0) x[range[0] + i] = 0;
  }
  return x;
}
