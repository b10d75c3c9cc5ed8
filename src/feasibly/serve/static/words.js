// Numbers and elements as the page writes them.
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function figure(value, digits = 5) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-3 || size >= 1e9) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return plain.format(value);
  return String(Number(value.toPrecision(digits)));
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  return `${Number(value.toPrecision(3))} s`;
}

export function percent(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value === 0) return "0 %";
  return size < 1e-2 ? `${value.toExponential(1)} %` : `${Number(value.toPrecision(3))} %`;
}

export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...inside.filter((each) => each !== null && each !== undefined));
  return element;
}

export const by = (id) => document.getElementById(id);

// A table from columns `[title, key or function, numeric]` and rows of objects.
export function table(columns, rows, { label, each } = {}) {
  const head = make("tr", {}, ...columns.map(([title, , n]) => make("th", { scope: "col", class: n ? "n" : null }, title)));
  const body = rows.map((row, i) => {
    const cells = columns.map(([, what, n]) => {
      const value = typeof what === "function" ? what(row, i) : row[what];
      return make("td", { class: n ? "n" : null }, value instanceof Node ? value : String(value ?? "–"));
    });
    const line = make("tr", {}, ...cells);
    if (each) each(line, row, i);
    return line;
  });
  return make("table", { "aria-label": label }, make("thead", {}, head), make("tbody", {}, ...body));
}
