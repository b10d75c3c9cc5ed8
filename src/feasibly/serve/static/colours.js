// Scales that tell apart without red against green, on light and dark ground.
const SCALES = {
  voltage: [[33, 92, 168], [116, 169, 207], [170, 178, 186], [239, 138, 98], [178, 24, 43]],
  loading: [[120, 150, 165], [66, 146, 160], [217, 180, 60], [232, 119, 34], [190, 20, 60]],
  price: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [240, 220, 40]],
  violation: [[150, 162, 172], [190, 160, 120], [226, 140, 60], [210, 60, 40], [140, 0, 60]],
};
export const STEPS = 24;

function mix(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const part = stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * (place - i)));
  return `rgb(${part.join(",")})`;
}

export const PALETTES = Object.fromEntries(Object.entries(SCALES).map(([name, stops]) =>
  [name, Array.from({ length: STEPS }, (_, i) => mix(stops, i / (STEPS - 1)))]));

export const step = (share) => (Number.isFinite(share) ? Math.min(STEPS - 1, Math.max(0, Math.round(share * (STEPS - 1)))) : -1);

const LEAST = -7, MOST = -2; // decades of violation
const small = (value) => (value > 0 ? (Math.log10(value) - LEAST) / (MOST - LEAST) : 0);

function quantiles(values) {
  const known = values.filter(Number.isFinite).sort((a, b) => a - b);
  if (!known.length) return [0, 1];
  const pick = (share) => known[Math.round(share * (known.length - 1))];
  const [low, high] = [pick(0.02), pick(0.98)];
  return high - low > 1e-6 * Math.abs(high) ? [low, high] : [low - 0.5, high + 0.5];
}

// For one answer: a step of the palette a bus and a branch (-1: no colour), and what the ends of the scale mean.
export function paint(kind, grid, seen) {
  const none = (list) => new Int8Array(list.length).fill(-1);
  const bus = none(grid.bus.id), branch = none(grid.branch.id);
  let low = "", high = "";
  if (kind === "voltage") {
    const { vmin, vmax } = grid.bus;
    seen.bus.vm.forEach((vm, i) => { bus[i] = step((vm - vmin[i]) / (vmax[i] - vmin[i] || 1)); });
    const same = (list) => list.every((v) => v === list[0]);
    low = same(vmin) ? `${vmin[0]} p.u.` : "lowest allowed";
    high = same(vmax) ? `${vmax[0]} p.u.` : "highest allowed";
  } else if (kind === "loading") {
    seen.branch.loading.forEach((share, i) => { branch[i] = share === null ? -1 : step(share / 100); });
    [low, high] = ["0 %", "100 % of the limit"];
  } else if (kind === "price" && seen.bus.price) {
    const [least, most] = quantiles(seen.bus.price);
    seen.bus.price.forEach((price, i) => { bus[i] = price === null ? -1 : step((price - least) / (most - least)); });
    [low, high] = [least.toFixed(2), `${most.toFixed(2)} $/MWh`];
  } else if (kind === "violation") {
    seen.bus.violation.forEach((v, i) => { bus[i] = step(small(v)); });
    seen.branch.violation.forEach((v, i) => { branch[i] = step(small(v)); });
    [low, high] = ["1e-7 or less", "0.01 p.u."];
  }
  return { bus, branch, low, high, palette: PALETTES[kind] };
}
