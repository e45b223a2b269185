"use strict";
// The plots over steps and over requests, drawn by uPlot; all plots over steps share the picture's stretch.
(() => {
  const number = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
  const time = (ns) => {
    if (ns === null || ns === undefined) return "–";
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= size) return `${number(ns / size)} ${unit}`;
    return `${number(ns)} ns`;
  };
  Bs.number = number;
  Bs.time = time;

  const axis = (values, extra) => ({
    stroke: () => Bs.colour("--soft"), grid: { stroke: () => Bs.colour("--grid"), width: 1 },
    ticks: { stroke: () => Bs.colour("--grid"), width: 1, size: 4 }, font: "11px system-ui, sans-serif", values, ...extra,
  });
  const short = (value) => value >= 1e9 ? value / 1e9 + "G" : value >= 1e6 ? value / 1e6 + "M" : value >= 1e4 ? value / 1e3 + "k" : number(value);
  const held = () => uPlot.paths.stepped({ align: 1 });

  const line = (label, colour, more = {}) => ({
    label, stroke: () => Bs.colour(colour), width: 1.5, points: { show: false }, paths: held(), value: (_, value) => number(value), ...more,
  });
  const bound = (label) => line(label, "--bound", { dash: [7, 4], width: 1.5, paths: undefined });
  const filled = (label, colour) => line(label, colour, { fill: () => Bs.colour(colour) + "99", width: 1 });

  Bs.Charts = class {
    constructor(model, moved) {
      this.model = model;
      this.moved = moved;
      this.plots = [];
      this.others = [];
      const { buckets, steps } = model.data;
      this.width = buckets.width;
      const many = Math.ceil(steps / this.width);
      this.x = Array.from({ length: many + 1 }, (_, i) => Math.min(steps, i * this.width));
      this.columns = buckets.columns;
    }

    // A column, its last value held to the end of the trace.
    values(name) {
      const column = this.columns[name];
      return [...column, column[column.length - 1] ?? null];
    }

    constant(value) { return this.x.map(() => value); }

    overSteps(id, series, data, more = {}) {
      const target = document.getElementById(id);
      if (!target || !this.x.length) return;
      const model = this.model;
      const plot = new uPlot({
        width: target.clientWidth || 300, height: 190, cursor: { sync: { key: "steps" }, y: false, drag: { x: true, y: false } },
        scales: { x: { time: false, range: (_, min, max) => [min, max] }, y: { range: (_, low, high) => [0, Math.max(1e-9, high) * 1.08] } },
        axes: [
          axis((_, values) => values.map((place) => short(model.step(place))), { size: 30, splits: (self, _, min, max) => Bs.ticks(model, min, max, self.width - 60, 58) }),
          axis((_, values) => values.map(short), { size: 48 }),
        ],
        series: [{ label: this.width > 1 ? `step (${this.width} each)` : "step", value: (_, place) => place === null ? "–" : model.step(Math.min(place, model.steps - 1)).toLocaleString("en") }, ...series],
        hooks: { setSelect: [(self) => {
          if (self.select.width < 4) return;
          const from = self.posToVal(self.select.left, "x"), to = self.posToVal(self.select.left + self.select.width, "x");
          self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          this.moved(from, to);
        }] },
        ...more,
      }, [this.x, ...data], target);
      plot.root.querySelector(".u-over").addEventListener("dblclick", () => this.moved(0, model.steps));
      // A drag selects a stretch; uPlot is not to zoom this plot alone.
      plot.cursor.drag.setScale = false;
      this.plots.push(plot);
    }

    build() {
      const { limits, tenants, bound: most, service } = this.model.data, wide = this.width > 1;
      const peak = (name, label) => wide ? [[line(label, "--soft", { width: 1, paths: undefined })], [this.values(name)]] : [[], []];
      const draw = (id, parts) => this.overSteps(id, parts.flatMap((part) => part[0]), parts.flatMap((part) => part[1]));
      const one = (made, values) => [[made], [values]];
      const limit = (label, value) => value ? one(bound(label), this.constant(value)) : [[], []];
      if (this.columns.blocks)
        draw("plot-kv", [one(filled(wide ? "blocks in use, peak" : "blocks in use", "--t0"), this.values("blocks")), limit("pool", limits.kv_blocks)]);
      draw("plot-queue", [one(filled(wide ? "waiting, mean" : "waiting", "--t1"), this.values("waiting")), peak("waiting_peak", "peak"), limit("most", limits.max_waiting)]);
      draw("plot-running", [
        one(filled(wide ? "running, mean" : "running", "--t2"), this.values("running")),
        one(line(wide ? "in the pass, mean" : "in the pass", "--t4"), this.values("members")),
        limit("max_seqs", limits.max_seqs),
      ]);
      const decode = this.values("decode"), prefill = this.values("prefill"), again = this.values("again");
      const two = decode.map((value, i) => value + prefill[i]), all = two.map((value, i) => value + again[i]);
      const part = (label, colour, own) => ({ ...line(label, colour, { fill: () => Bs.colour(colour), width: 0.5 }), value: (_, __, ___, i) => i === null ? "–" : number(own[i]) });
      draw("plot-tokens", [
        one(part("recomputed", "--again", again), all), one(part("prefill", "--prefill", prefill), two), one(part("decode", "--decode", decode), decode),
        peak("tokens_peak", "peak of a step"), limit("budget", limits.token_budget),
      ]);
      if (tenants.length) {
        draw("plot-service", tenants.map((name, i) => one(line(name, `--t${i % 8}`, { dash: i < 8 ? undefined : [6, 3] }), this.values(`service${i}`))));
        draw("plot-drift", [one(filled("widest drift", "--t3"), this.values("drift")), limit(service, most)]);
      }
      this.latencies();
    }

    // What share of the requests waited no longer than how long; the upper shares are drawn wider.
    latencies() {
      const { latency } = this.model.data, target = document.getElementById("plot-latency");
      if (!target || !latency) return;
      const tail = (share) => -Math.log10(Math.max(1e-3, 1 - share * 0.999));
      const shares = latency.shares, names = Object.keys(latency.curves);
      const marks = [0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];
      const positive = names.flatMap((name) => latency.curves[name]).filter((value) => value > 0);
      const low = positive.length ? positive.reduce((a, b) => Math.min(a, b)) : 1;
      const plot = new uPlot({
        width: target.clientWidth || 300, height: 260, cursor: { y: false, drag: { x: false, y: false } },
        scales: { x: { time: false }, y: { distr: 3 } },
        axes: [
          axis((_, values) => values.map((value) => { const share = marks.find((mark) => Math.abs(tail(mark) - value) < 1e-9); return share === undefined ? "" : share ? `p${+(share * 100).toFixed(1)}` : "least"; }), { size: 30, splits: () => marks.map(tail) }),
          axis((_, values) => values.map((value) => value === null ? "" : time(value)), { size: 62 }),
        ],
        series: [
          { label: "share", value: (_, __, ___, i) => i === null || i === undefined ? "–" : `p${+(shares[i] * 100).toFixed(1)}` },
          ...names.map((name, i) => line(name, `--t${i}`, { paths: undefined, width: 2, dash: [[], [8, 3], [2, 3], [9, 3, 2, 3]][i], value: (_, value) => time(value) })),
        ],
      }, [shares.map(tail), ...names.map((name) => latency.curves[name].map((value) => Math.max(low, value)))], target);
      this.others.push(plot);
    }

    show(from, to) {
      for (const plot of this.plots) plot.setScale("x", { min: from, max: to });
    }

    // To the room that there is, or to a width.
    resize(width = null) {
      for (const plot of [...this.plots, ...this.others]) {
        const wide = width || plot.root.parentElement.clientWidth;
        if (wide) plot.setSize({ width: wide, height: plot.height });
      }
    }

    repaint() {
      for (const plot of [...this.plots, ...this.others]) plot.redraw(true, true);
    }
  };
})();
