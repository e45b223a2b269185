"use strict";
// The slot-by-step picture: a row a slot, a column a step. Who sits where, and what the pass did with them.
//
//   const model = Bs.model(data);                 what the page's data block says, decoded
//   const picture = new Bs.Picture(canvas, model, { rows, view: [0, 40] });
//   picture.draw();
//
// Steps are places in the trace (0 is its first step); model.step(place) is the number that the trace gives.
const Bs = {};
(() => {
  const KINDS = ["decode", "prefill", "recompute", "idle"];
  const ENDS = ["", "finished", "preempted", "aborted"];
  const COLOURS = ["--decode", "--prefill", "--again", "--idle"];
  const MOST_DRAWN = 30000; // runs in sight; beyond that the summary is drawn
  const GUTTER = 46;

  const cssVar = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  Bs.colour = cssVar;
  Bs.KINDS = KINDS;
  Bs.ENDS = ENDS;
  Bs.GUTTER = GUTTER;

  // ---- the model ---------------------------------------------------------------------------------

  // Undo the packing of data.py: differences into places, three small numbers out of one.
  Bs.model = (data) => {
    const packed = data.seats.runs, many = packed.code.length;
    const runs = {
      first: new Int32Array(many), last: new Int32Array(many), seat: new Int32Array(many),
      kind: new Uint8Array(many), end: new Uint8Array(many), endAt: new Int32Array(many),
      request: new Int32Array(many), tokens: new Float64Array(many),
    };
    const rows = data.seats.labels.map(() => []);
    let at = 0, request = 0;
    for (let i = 0; i < many; i++) {
      at += packed.first[i];
      request += packed.request[i];
      const code = packed.code[i];
      runs.first[i] = at;
      runs.last[i] = at + packed.length[i] - 1;
      runs.end[i] = code & 3;
      runs.kind[i] = (code >> 2) & 3;
      runs.seat[i] = code >> 4;
      runs.endAt[i] = runs.end[i] ? runs.last[i] + packed.late[i] : -1;
      runs.request[i] = request;
      runs.tokens[i] = packed.tokens[i];
      rows[runs.seat[i]].push(i);
    }
    let heat = null;
    if (data.seats.heat) {
      const text = atob(data.seats.heat.levels), bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      heat = { width: data.seats.heat.width, stretches: Math.ceil(data.steps / data.seats.heat.width), bytes };
    }
    // Two runs that share a slot (a broken trace) may overlap, so how far back to look is remembered.
    const longest = rows.map((list) => list.reduce((most, i) => Math.max(most, runs.last[i] - runs.first[i]), 0));
    const breaks = data.breaks;
    const find = (place, column) => {
      let low = 0, high = breaks.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (breaks[middle][column] <= place) low = middle; else high = middle - 1;
      }
      return breaks[low] || [0, 0];
    };
    const model = {
      data, runs, rows, heat, steps: data.steps, labels: data.seats.labels, spans: data.seats.spans,
      findings: data.findings.filter((finding) => finding.at !== null),
      step: (place) => { const [at, number] = find(place, 0); return number + place - at; },
      place: (step) => { const [at, number] = find(step, 1); return Math.max(0, Math.min(data.steps - 1, at + step - number)); },
      name: (index) => data.requests.id[index],
      inFull: (a, b) => data.seats.spans.some(([first, last]) => first <= a && b <= last),
      // Indexes into `rows[row]` of the first run that may be in sight at place `a`.
      from: (row, a) => {
        const list = rows[row], want = a - longest[row];
        let low = 0, high = list.length;
        while (low < high) {
          const middle = (low + high) >> 1;
          if (runs.first[list[middle]] < want) low = middle + 1; else high = middle;
        }
        return low;
      },
      // Runs of a row that meet [a, b].
      inSight: function* (row, a, b) {
        const list = rows[row];
        for (let k = model.from(row, a); k < list.length; k++) {
          const i = list[k];
          if (runs.first[i] > b) return;
          if (runs.last[i] >= a || runs.endAt[i] >= a) yield i;
        }
      },
      at: (place) => {
        const found = [];
        for (let row = 0; row < rows.length; row++)
          for (const i of model.inSight(row, place, place))
            if (runs.first[i] <= place && runs.last[i] >= place) found.push(i);
        return found;
      },
      countInSight: (shown, a, b) => {
        let count = 0;
        for (const row of shown) {
          const list = rows[row];
          let low = model.from(row, a), high = list.length, from = low;
          while (low < high) {
            const middle = (low + high) >> 1;
            if (runs.first[list[middle]] <= b) low = middle + 1; else high = middle;
          }
          count += low - from;
          if (count > MOST_DRAWN) break;
        }
        return count;
      },
    };
    return model;
  };

  // ---- drawing -----------------------------------------------------------------------------------

  const sized = (canvas, height) => {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const width = Math.max(60, canvas.clientWidth || canvas.parentElement.clientWidth);
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const ink = canvas.getContext("2d");
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, width, height);
    return [ink, width];
  };

  const hatch = (ink, colour) => {
    const tile = document.createElement("canvas"), ratio = Math.min(3, window.devicePixelRatio || 1);
    tile.width = tile.height = Math.round(6 * ratio);
    const pen = tile.getContext("2d");
    pen.scale(ratio, ratio);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    const pattern = ink.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern;
  };

  // The places in [a, b) of round step numbers, about one every `apart` pixels.
  Bs.ticks = (model, a, b, width, apart) => {
    const from = model.step(Math.max(0, Math.ceil(a))), to = model.step(Math.max(0, Math.min(model.steps, Math.ceil(b)) - 1));
    const raw = Math.max(1, ((to - from) * apart) / Math.max(1, width)), power = 10 ** Math.floor(Math.log10(raw));
    const by = Math.max(1, [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw));
    const found = [];
    for (let number = Math.ceil(from / by) * by; number <= to; number += by) {
      const place = model.place(number);
      if (model.step(place) === number) found.push(place);
    }
    return found;
  };

  Bs.Picture = class {
    constructor(canvas, model, options = {}) {
      this.canvas = canvas;
      this.model = model;
      this.rows = options.rows || model.labels.map((_, row) => row);
      this.view = options.view || [0, Math.max(1, model.steps)];
      this.tall = options.tall || 520;
      this.most = options.most || 20;
      this.axis = options.axis || 0; // pixels for step numbers at the bottom
      this.chosen = new Set(options.chosen || []);
      this.cursor = options.cursor ?? null;
      this.flag = options.flag ?? null;
    }

    get rowHeight() {
      return Math.max(3, Math.min(this.most, Math.floor(this.tall / Math.max(1, this.rows.length))));
    }

    get height() { return Math.max(12, this.rows.length * this.rowHeight + this.axis); }

    x(place) { return GUTTER + ((place - this.view[0]) / (this.view[1] - this.view[0])) * (this.width - GUTTER); }

    placeAt(x) { return this.view[0] + ((x - GUTTER) / (this.width - GUTTER)) * (this.view[1] - this.view[0]); }

    rowAt(y) { return this.rows[Math.floor(y / this.rowHeight)]; }

    runAt(x, y) {
      const row = this.rowAt(y), place = Math.floor(this.placeAt(x));
      if (row === undefined || x < GUTTER || this.summarised) return -1;
      for (const i of this.model.inSight(row, place, place))
        if (this.model.runs.first[i] <= place && this.model.runs.last[i] >= place) return i;
      return -1;
    }

    draw() {
      const { height } = this, [ink, width] = sized(this.canvas, height);
      this.width = width;
      this.ink = ink;
      const colours = COLOURS.map(cssVar);
      this.hatch = hatch(ink, colours[3]);
      this.colours = colours;
      const [a, b] = this.view;
      const near = this.model.countInSight(this.rows, a, b) <= MOST_DRAWN;
      const legible = b - a <= 3 * (width - GUTTER); // more steps in a pixel show nothing of one step
      this.summarised = Boolean(this.model.heat) && !(near && legible && this.model.inFull(Math.max(0, Math.floor(a)), Math.min(this.model.steps - 1, Math.ceil(b) - 1)));
      this.frame();
      ink.save();
      ink.beginPath();
      ink.rect(GUTTER, 0, width - GUTTER, height);
      ink.clip();
      if (this.summarised) this.drawHeat(); else this.drawRuns();
      this.lines();
      ink.restore();
      if (this.axis) this.drawAxis(this.rows.length * this.rowHeight);
    }

    frame() {
      const ink = this.ink, high = this.rowHeight, labels = this.model.labels;
      const every = Math.max(1, Math.ceil(13 / high));
      ink.font = "11px system-ui, sans-serif";
      ink.textAlign = "right";
      ink.textBaseline = "middle";
      this.rows.forEach((row, place) => {
        const y = place * high;
        ink.fillStyle = cssVar("--faint");
        ink.fillRect(GUTTER, y, this.width - GUTTER, Math.max(1, high - 1));
        if (place % every === 0) {
          ink.fillStyle = cssVar("--soft");
          ink.fillText(String(labels[row]), GUTTER - 7, y + high / 2);
        }
      });
    }

    drawRuns() {
      const { ink, model, colours } = this, { runs } = model, high = this.rowHeight, tall = Math.max(2, high - 1);
      const [a, b] = this.view, wide = (this.width - GUTTER) / (b - a), dim = this.chosen.size > 0;
      const marks = [];
      const back = cssVar("--card");
      this.rows.forEach((row, place) => {
        const y = place * high;
        for (const i of model.inSight(row, a, b)) {
          const x = this.x(runs.first[i]), far = this.x(runs.last[i] + 1), w = Math.max(1, far - x - (wide > 5 ? 1 : 0));
          const loud = !dim || this.chosen.has(runs.request[i]);
          ink.globalAlpha = loud ? 1 : 0.35;
          if (runs.kind[i] === 3) {
            ink.fillStyle = back;
            ink.fillRect(x, y, w, tall);
            ink.fillStyle = this.hatch;
            ink.fillRect(x, y, w, tall);
            ink.strokeStyle = colours[3];
            ink.lineWidth = 0.7;
            if (w > 3) ink.strokeRect(x + 0.4, y + 0.4, w - 0.8, tall - 0.8);
          } else {
            ink.fillStyle = colours[runs.kind[i]];
            ink.fillRect(x, y, w, tall);
          }
          const seen = Math.min(far, this.width) - Math.max(x, GUTTER);
          if (high >= 14 && seen > 34 && loud && runs.kind[i] !== 3) {
            const name = String(model.name(runs.request[i])), fits = Math.floor((seen - 8) / 6.4);
            if (fits >= 2) {
              ink.fillStyle = this.onColour(runs.kind[i]);
              ink.textAlign = "left";
              ink.font = "11px system-ui, sans-serif";
              ink.fillText(name.length > fits ? name.slice(0, fits - 1) + "…" : name, Math.max(x, GUTTER) + 4, y + tall / 2 + 0.5);
            }
          }
          if (runs.end[i]) marks.push([i, y]);
        }
      });
      if (wide > 1.2 || marks.length < 3000) for (const [i, y] of marks) this.mark(i, y, wide);
      ink.globalAlpha = 1;
    }

    onColour(kind) {
      const dark = document.documentElement.dataset.theme === "dark";
      return dark ? "#10141a" : kind === 1 ? "#2a1c00" : "#ffffff";
    }

    // A tick where a request is done, a cross where it was interrupted, a slash where it was aborted.
    mark(i, y, wide) {
      const { ink } = this, { runs } = this.model, tall = Math.max(2, this.rowHeight - 1);
      ink.globalAlpha = !this.chosen.size || this.chosen.has(runs.request[i]) ? 1 : 0.35;
      if (runs.end[i] === 1) {
        const x = this.x(runs.last[i] + 1) - (wide > 5 ? 1 : 0);
        ink.fillStyle = cssVar("--end");
        if (wide < 2.5) ink.globalAlpha *= 0.5;
        ink.fillRect(x - Math.min(2.5, Math.max(1, wide * 0.2)), y, Math.min(2.5, Math.max(1, wide * 0.2)), tall);
        return;
      }
      const x = this.x(runs.endAt[i] + (runs.endAt[i] > runs.last[i] ? 0 : 1)), r = Math.max(1.5, Math.min(5, tall / 2 - 1, 1.5 + wide)), middle = y + tall / 2;
      ink.lineWidth = r > 3.5 ? 5 : 2.8;
      for (const colour of [cssVar("--card"), cssVar(runs.end[i] === 2 ? "--preempt" : "--end")]) {
        ink.strokeStyle = colour;
        ink.beginPath();
        ink.moveTo(x - r, middle - r);
        ink.lineTo(x + r, middle + r);
        if (runs.end[i] === 2) { ink.moveTo(x - r, middle + r); ink.lineTo(x + r, middle - r); }
        ink.stroke();
        ink.lineWidth = r > 3.5 ? 2.2 : 1.3;
      }
    }

    // Shares of what the slot did, one upon the other; as many stretches to a column as make it two pixels wide.
    drawHeat() {
      const { ink, model, colours } = this, { heat, runs } = model, high = this.rowHeight, tall = Math.max(2, high - 1);
      const pixels = ((this.width - GUTTER) / (this.view[1] - this.view[0])) * heat.width, group = Math.max(1, Math.ceil(2 / pixels));
      const from = Math.max(0, Math.floor(this.view[0] / heat.width / group) * group), to = Math.min(heat.stretches - 1, Math.floor(this.view[1] / heat.width));
      this.summaryWidth = group * heat.width;
      this.rows.forEach((row, place) => {
        const y = place * high;
        for (let at = from; at <= to; at += group) {
          const shares = [0, 0, 0, 0], upTo = Math.min(heat.stretches, at + group);
          for (let one = at; one < upTo; one++) {
            const byte = 2 * (row * heat.stretches + one), low = heat.bytes[byte], up = heat.bytes[byte + 1];
            shares[0] += low & 15; shares[1] += low >> 4; shares[2] += up & 15; shares[3] += up >> 4;
          }
          const sum = shares[0] + shares[1] + shares[2] + shares[3];
          if (!sum) continue;
          const x = Math.round(this.x(at * heat.width)), w = Math.max(1, Math.round(this.x(Math.min(model.steps, upTo * heat.width))) - x);
          const scale = tall / Math.max(15 * (upTo - at), sum);
          let base = y + tall;
          for (const kind of [0, 1, 2, 3]) {
            const h = shares[kind] * scale;
            if (!h) continue;
            base -= h;
            ink.fillStyle = kind === 3 ? this.hatch : colours[kind];
            ink.fillRect(x, base, w, h);
          }
        }
      });
      // Preemptions are few and matter: a tick each, where the page knows them one by one.
      ink.fillStyle = cssVar("--preempt");
      const place = new Map(this.rows.map((row, at) => [row, at]));
      for (let i = 0; i < runs.end.length; i++)
        if (runs.end[i] === 2 && place.has(runs.seat[i])) ink.fillRect(this.x(runs.endAt[i]) - 0.75, place.get(runs.seat[i]) * high, 1.5, Math.max(2, tall * 0.6));
    }

    lines() {
      const { ink } = this, height = this.rows.length * this.rowHeight;
      const stroke = (place, colour, dash, wide) => {
        ink.strokeStyle = colour;
        ink.lineWidth = wide;
        ink.setLineDash(dash);
        ink.beginPath();
        ink.moveTo(this.x(place), 0);
        ink.lineTo(this.x(place), height);
        ink.stroke();
        ink.setLineDash([]);
      };
      if (this.flag !== null) {
        ink.globalAlpha = 0.13;
        ink.fillStyle = cssVar("--bad");
        ink.fillRect(this.x(this.flag), 0, Math.max(2, this.x(this.flag + 1) - this.x(this.flag)), height);
        ink.globalAlpha = 1;
        stroke(this.flag, cssVar("--bad"), [], 1);
      }
      if (this.cursor !== null) {
        stroke(this.cursor, cssVar("--cursor"), [], 1.2);
        if (this.x(this.cursor + 1) - this.x(this.cursor) > 3) stroke(this.cursor + 1, cssVar("--cursor"), [], 1.2);
      }
    }

    drawAxis(y) {
      const { ink } = this;
      ink.font = "11px system-ui, sans-serif";
      ink.textAlign = "center";
      ink.textBaseline = "top";
      ink.fillStyle = cssVar("--soft");
      for (const place of Bs.ticks(this.model, this.view[0], this.view[1], this.width - GUTTER, 54))
        ink.fillText(this.model.step(place).toLocaleString("en"), this.x(place + 0.5), y + 3);
    }

    // The ruler above the picture: step numbers, and a flag for each finding.
    drawRuler(canvas) {
      const [ink, width] = sized(canvas, 30);
      this.ink = ink;
      this.width = width;
      ink.font = "11px system-ui, sans-serif";
      ink.textAlign = "center";
      ink.textBaseline = "top";
      ink.fillStyle = cssVar("--soft");
      for (const place of Bs.ticks(this.model, this.view[0], this.view[1], width - GUTTER, 86)) {
        const x = this.x(place + 0.5);
        ink.fillText(this.model.step(place).toLocaleString("en"), Math.min(width - 18, x), 0);
        ink.fillRect(x, 14, 1, 4);
      }
      ink.textAlign = "right";
      ink.fillText("step", GUTTER - 7, 0);
      ink.fillStyle = cssVar("--bad");
      for (const finding of this.model.findings) {
        const x = this.x(finding.at + 0.5);
        if (x < GUTTER || x > width) continue;
        ink.beginPath();
        ink.moveTo(x, 29);
        ink.lineTo(x - 5, 20);
        ink.lineTo(x + 5, 20);
        ink.fill();
      }
    }

    describe(i) {
      const { runs, data } = this.model, index = runs.request[i], about = data.requests;
      const steps = runs.first[i] === runs.last[i] ? `step ${this.model.step(runs.first[i])}` : `steps ${this.model.step(runs.first[i])}–${this.model.step(runs.last[i])}`;
      const does = runs.kind[i] === 3 ? "holds its slot, computes nothing" : `${KINDS[runs.kind[i]]}, ${runs.tokens[i].toLocaleString("en")} tokens`;
      const lines = [`${this.model.name(index)}  ·  slot ${this.model.labels[runs.seat[i]]}`, `${steps}: ${does}`];
      if (runs.end[i]) lines.push(`${ENDS[runs.end[i]]} in step ${this.model.step(runs.endAt[i])}`);
      const facts = [];
      if (about.prompt[index] !== null) facts.push(`prompt ${about.prompt[index].toLocaleString("en")}`);
      if (about.outputs[index] !== null) facts.push(`output ${about.outputs[index].toLocaleString("en")}`);
      if (about.preemptions[index]) facts.push(`preempted ${about.preemptions[index]}×`);
      if (about.tenant[index] !== null) facts.push(`tenant ${data.tenants[about.tenant[index]]}`);
      if (facts.length) lines.push(facts.join(", "));
      return lines.join("\n");
    }
  };
})();
