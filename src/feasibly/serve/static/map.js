// The grid on a canvas: one path a colour, so that thousands of branches are a few dozen strokes.
import { by, figure } from "./words.js";
import { paint, STEPS } from "./colours.js";

export class GridMap {
  constructor(canvas, { picked, toggled }) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.picked = picked;
    this.toggled = toggled;
    this.grid = null;
    this.seen = null;
    this.view = { scale: 1, x: 0, y: 0 };
    this.chosen = -1;
    this.off = new Set();
    this.colour = "voltage";
    this.frames = [];
    this.waiting = false;
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.listen();
  }

  show(grid) {
    this.grid = grid;
    this.seen = null;
    const most = new Float64Array(grid.bus.id.length);
    grid.load.bus.forEach((bus) => { most[bus] = 1; });
    this.units = new Set(grid.generator.bus);
    this.loaded = most;
    this.resize();
    this.whole();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: w, clientHeight: h } = this.canvas;
    if (!w || !h) return;
    const before = this.size;
    this.size = { w, h };
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    this.ratio = ratio;
    if (this.grid && (!before || !this.touched)) this.whole(); else this.draw();
  }

  whole() {
    if (!this.grid || !this.size) return;
    const { x, y } = this.grid.bus;
    const [right, bottom] = [Math.max(...x), Math.max(...y)];
    const room = 28;
    const scale = Math.min((this.size.w - 2 * room) / (right || 1), (this.size.h - 2 * room) / (bottom || 1));
    this.fit = scale;
    this.view = { scale, x: (this.size.w - scale * right) / 2, y: (this.size.h - scale * bottom) / 2 };
    this.touched = false;
    this.draw();
  }

  zoom(factor, px = this.size.w / 2, py = this.size.h / 2) {
    const scale = Math.min(Math.max(this.view.scale * factor, this.fit * 0.5), this.fit * 60);
    const ratio = scale / this.view.scale;
    this.view = { scale, x: px - (px - this.view.x) * ratio, y: py - (py - this.view.y) * ratio };
    this.touched = true;
    this.draw();
  }

  pan(dx, dy) {
    this.view = { ...this.view, x: this.view.x + dx, y: this.view.y + dy };
    this.touched = true;
    this.draw();
  }

  centre(i) {
    const { x, y } = this.grid.bus;
    const scale = Math.max(this.view.scale, this.fit * (this.grid.bus.id.length > 300 ? 5 : 1));
    const inside = (v, most) => v > 40 && v < most - 40;
    const [px, py] = this.point(i);
    if (scale === this.view.scale && inside(px, this.size.w) && inside(py, this.size.h)) { this.draw(); return; }
    this.view = { scale, x: this.size.w / 2 - scale * x[i], y: this.size.h / 2 - scale * y[i] };
    this.touched = true;
    this.draw();
  }

  point(i) {
    const { x, y } = this.grid.bus;
    return [x[i] * this.view.scale + this.view.x, y[i] * this.view.scale + this.view.y];
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.render(); });
  }

  render() {
    const { grid, pen, size } = this;
    if (!grid || !size) return;
    const began = performance.now();
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), ground = style.getPropertyValue("--map");
    const painted = this.seen && this.seen.bus ? paint(this.colour, grid, this.seen) : null;
    this.painted = painted;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, size.w, size.h);
    const count = grid.bus.id.length;
    const zoom = Math.sqrt(this.view.scale / this.fit);
    const radius = Math.min(9, Math.max(1.3, (count > 1000 ? 1.9 : count > 300 ? 3 : 5.2) * zoom));
    const px = new Float32Array(count), py = new Float32Array(count);
    for (let i = 0; i < count; i++) [px[i], py[i]] = this.point(i);
    this.branches(pen, painted, px, py, radius, soft);
    this.buses(pen, painted, px, py, radius, soft, ground);
    if (count <= 150 || zoom > 2.6) this.labels(pen, px, py, radius, ink, ground);
    if (this.chosen >= 0) {
      pen.lineWidth = 2.5;
      pen.strokeStyle = style.getPropertyValue("--accent");
      pen.beginPath();
      pen.arc(px[this.chosen], py[this.chosen], radius + 5, 0, 7);
      pen.stroke();
    }
    this.frames.push(performance.now() - began);
    if (this.frames.length > 240) this.frames.shift();
  }

  branches(pen, painted, px, py, radius, soft) {
    const { from, to, id } = this.grid.branch;
    const bins = Array.from({ length: STEPS + 1 }, () => []);
    for (let i = 0; i < id.length; i++) {
      if (!this.off.has(id[i])) bins[(painted ? painted.branch[i] : -1) + 1].push(i);
    }
    bins.forEach((members, bin) => {
      if (!members.length) return;
      pen.beginPath();
      for (const i of members) { pen.moveTo(px[from[i]], py[from[i]]); pen.lineTo(px[to[i]], py[to[i]]); }
      const coloured = bin > 0;
      pen.strokeStyle = coloured ? painted.palette[bin - 1] : soft;
      pen.globalAlpha = coloured ? 1 : 0.45;
      pen.lineWidth = coloured ? radius * (0.35 + 0.45 * (bin / STEPS)) : Math.max(0.6, radius * 0.25);
      pen.stroke();
    });
    pen.globalAlpha = 1;
    if (this.off.size) {
      pen.setLineDash([4, 4]);
      pen.strokeStyle = "#b3261e";
      pen.lineWidth = 1.5;
      pen.beginPath();
      id.forEach((number, i) => {
        if (this.off.has(number)) { pen.moveTo(px[from[i]], py[from[i]]); pen.lineTo(px[to[i]], py[to[i]]); }
      });
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  buses(pen, painted, px, py, radius, soft, ground) {
    const bins = Array.from({ length: STEPS + 1 }, () => []);
    for (let i = 0; i < px.length; i++) bins[(painted ? painted.bus[i] : -1) + 1].push(i);
    bins.forEach((members, bin) => {
      if (!members.length) return;
      pen.fillStyle = bin > 0 ? painted.palette[bin - 1] : soft;
      const few = radius > 2.4;
      pen.strokeStyle = ground;
      pen.lineWidth = 1.2;
      pen.beginPath();
      for (const i of members) {
        if (this.units.has(i)) {
          const half = radius * 1.25;
          pen.rect(px[i] - half, py[i] - half, 2 * half, 2 * half);
        } else {
          const r = this.loaded[i] ? radius : radius * 0.7;
          pen.moveTo(px[i] + r, py[i]);
          pen.arc(px[i], py[i], r, 0, 6.2832);
        }
      }
      pen.fill();
      if (few) pen.stroke();
    });
  }

  labels(pen, px, py, radius, ink, ground) {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.lineWidth = 3;
    pen.strokeStyle = ground;
    pen.fillStyle = ink;
    const { id } = this.grid.bus;
    for (let i = 0; i < px.length; i++) {
      if (px[i] < -20 || py[i] < -20 || px[i] > this.size.w + 20 || py[i] > this.size.h + 20) continue;
      pen.strokeText(id[i], px[i] + radius + 4, py[i] - radius);
      pen.fillText(id[i], px[i] + radius + 4, py[i] - radius);
    }
  }

  under(x, y) {
    const { bus, branch } = this.grid;
    let best = 14 ** 2, found = null;
    for (let i = 0; i < bus.id.length; i++) {
      const [px, py] = this.point(i);
      const far = (px - x) ** 2 + (py - y) ** 2;
      if (far < best) { best = far; found = { kind: "bus", i }; }
    }
    if (found) return found;
    best = 6 ** 2;
    for (let i = 0; i < branch.id.length; i++) {
      const [ax, ay] = this.point(branch.from[i]), [bx, by_] = this.point(branch.to[i]);
      const length = (bx - ax) ** 2 + (by_ - ay) ** 2 || 1;
      const t = Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by_ - ay)) / length));
      const far = (ax + t * (bx - ax) - x) ** 2 + (ay + t * (by_ - ay) - y) ** 2;
      if (far < best) { best = far; found = { kind: "branch", i }; }
    }
    return found;
  }

  tell(found, x, y) {
    const tip = by("tip");
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = this.describe(found);
    const room = tip.offsetWidth + 20;
    tip.style.left = `${x + room > this.size.w ? x - room + 8 : x + 14}px`;
    tip.style.top = `${this.canvas.offsetTop + y + 14}px`;
  }

  describe({ kind, i }) {
    const { grid, seen } = this;
    const shown = seen && seen.bus;
    if (kind === "bus") {
      const price = shown && seen.bus.price ? `\nprice ${figure(seen.bus.price[i], 5)} $/MWh` : "";
      return `Bus ${grid.bus.id[i]}` + (shown ? `\nvoltage ${figure(seen.bus.vm[i], 4)} p.u., ${figure(seen.bus.va[i], 4)}°` : "") + price;
    }
    const ends = `${grid.bus.id[grid.branch.from[i]]} – ${grid.bus.id[grid.branch.to[i]]}`;
    return `Branch ${grid.branch.id[i]}: ${ends}` + (shown ? `\n${figure(seen.branch.p[i], 4)} MW, loading ${figure(seen.branch.loading[i], 3)} %` : "");
  }

  listen() {
    const { canvas } = this;
    const fingers = new Map();
    let moved = 0, apart = 0;
    const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, spot(event));
      moved = 0; apart = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.grid) return;
      const [x, y] = spot(event);
      const before = fingers.get(event.pointerId);
      if (!before) { this.tell(this.under(x, y), x, y); return; }
      moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      fingers.set(event.pointerId, [x, y]);
      if (fingers.size === 1) { if (moved > 4) { this.pan(x - before[0], y - before[1]); by("tip").hidden = true; } return; }
      const [a, b] = [...fingers.values()];
      const far = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (apart) this.zoom(far / apart, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      apart = far;
    });
    const up = (event) => {
      const there = fingers.delete(event.pointerId);
      if (!there || moved > 4 || !this.grid || event.type !== "pointerup") return;
      const found = this.under(...spot(event));
      if (found && found.kind === "bus") this.picked(found.i);
      if (found && found.kind === "branch") this.toggled(found.i);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { by("tip").hidden = true; });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...spot(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const far = 40;
      const moves = { ArrowLeft: [far, 0], ArrowRight: [-far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] };
      if (moves[event.key]) this.pan(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.whole();
      else return;
      event.preventDefault();
    });
  }
}
