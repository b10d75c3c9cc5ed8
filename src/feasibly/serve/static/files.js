// A file of inputs: answers, plots, and a row of it on the map.
import { by, figure, make, seconds, table } from "./words.js";
import { at, talk } from "./talk.js";

const TITLES = {
  objective: "Cost", max_equality: "Out of balance", max_inequality: "Beyond a limit", max_loading: "Highest loading, %", vm_min: "Voltages, lowest and highest, p.u.",
};
const NS = "http://www.w3.org/2000/svg";
const svg = (tag, attributes) => { const e = document.createElementNS(NS, tag); for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v); return e; };

export function plot(title, curves, outcomes) {
  const known = curves.flat().filter((v) => v !== null && Number.isFinite(v));
  const box = make("figure", { class: "plot" }, make("h3", {}, title));
  box.style.margin = 0;
  if (!known.length) { box.append(make("p", { class: "hint" }, "nothing to draw")); return box; }
  let [low, high] = [Math.min(...known), Math.max(...known)];
  if (high - low < 1e-12 * Math.abs(high) || high === low) { low -= Math.abs(low) * 0.01 || 0.5; high += Math.abs(high) * 0.01 || 0.5; }
  const [w, h, left, bottom] = [300, 120, 52, 16];
  const count = curves[0].length;
  const px = (i) => left + ((w - left - 8) * (count > 1 ? i / (count - 1) : 0.5));
  const py = (v) => 6 + (h - bottom - 12) * (1 - (v - low) / (high - low));
  const drawing = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${title}: from ${figure(Math.min(...known))} to ${figure(Math.max(...known))} over ${count} rows` });
  drawing.append(svg("line", { class: "axis", x1: left, x2: w - 8, y1: h - bottom, y2: h - bottom }));
  for (const [value, y] of [[high, 12], [low, h - bottom]]) { const t = svg("text", { x: 0, y }); t.textContent = figure(value, 4); drawing.append(t); }
  for (const [i, anchor] of [[0, "start"], [count - 1, "end"]]) { const t = svg("text", { x: px(i), y: h - 3, "text-anchor": anchor }); t.textContent = `row ${i + 1}`; drawing.append(t); }
  curves.forEach((curve, k) => {
    let path = "";
    curve.forEach((v, i) => { if (v !== null && Number.isFinite(v)) path += `${path && curve[i - 1] !== null ? "L" : "M"}${px(i).toFixed(1)} ${py(v).toFixed(1)}`; });
    drawing.append(svg("path", { d: path, class: k ? "curve second" : "curve" }));
    if (count <= 60) curve.forEach((v, i) => { if (v !== null && Number.isFinite(v)) drawing.append(svg("circle", { cx: px(i), cy: py(v), r: 2, class: outcomes[i] === "OK" ? "" : "off" })); });
  });
  box.append(drawing);
  return box;
}

export class Files {
  constructor(useRow) {
    this.useRow = useRow;
    by("file").addEventListener("change", () => this.take());
  }

  show(model, state) {
    this.model = model;
    this.state = state;
    by("file-names").textContent = `${model.input_names.slice(0, 3).join(", ")} … ${model.grid ? "per unit" : ""}`;
    const line = (x) => x.map((v) => String(Number(v.toPrecision(9)))).join(",");
    const some = [0.97, 1, 1.03].map((f) => line(model.nominal.map((v, i) => (model.grid && i < 2 * model.grid.load.bus.length ? v * f : v))));
    by("template").href = URL.createObjectURL(new Blob([[model.input_names.join(","), ...some].join("\n") + "\n"], { type: "text/csv" }));
    by("file").value = "";
    by("file-said").textContent = "";
    by("plots").replaceChildren();
    by("file-rows").replaceChildren();
  }

  async take() {
    const file = by("file").files[0];
    if (!file) return;
    const { model, state } = this;
    const said = by("file-said");
    said.textContent = `Answering ${file.name} ...`;
    by("plots").replaceChildren();
    by("file-rows").replaceChildren();
    try {
      const found = await talk(`${at(model.name, "table")}?answer=${state.answer}`, await file.text(), { text: true });
      this.csv = found.csv;
      const count = found.outcome.length;
      const usable = found.outcome.filter((name) => name === "OK").length;
      const save = make("a", { class: "button", id: "download", download: file.name.replace(/(\.csv)?$/i, "-answers.csv"), href: URL.createObjectURL(new Blob([found.csv], { type: "text/csv" })) }, "Download the answers");
      said.replaceChildren(`${count} rows in ${seconds(found.seconds)}, ${usable} usable as they are. `, save);
      const { series } = found;
      const plots = Object.keys(TITLES).filter((name) => series[name]).map((name) => plot(TITLES[name], name === "vm_min" ? [series.vm_min, series.vm_max] : [series[name]], found.outcome));
      by("plots").replaceChildren(...plots);
      const rows = found.outcome.slice(0, 200).map((outcome, i) => ({ outcome, i }));
      by("file-rows").replaceChildren(table([
        ["row", ({ i }) => i + 1], ["outcome", "outcome"], ["rung", ({ i }) => found.rung[i]], ["cost", ({ i }) => figure(series.objective[i], 7), true],
        ["violation", ({ i }) => figure(Math.max(series.max_equality[i] ?? NaN, series.max_inequality[i] ?? NaN), 2), true],
        ["", ({ i }) => make("button", { type: "button", onclick: () => this.useRow(found.x[i]) }, "Show")],
      ], rows, { label: "Answers to the file" }));
    } catch (error) {
      said.textContent = `Not answered: ${error.message}`;
    }
  }
}
