"use strict";
// The page: theme, the big picture and its controls, findings with their stretch, filters, print.
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const data = JSON.parse($("data").textContent);
  const repaint = [];

  // ---- theme -------------------------------------------------------------------------------------
  const wished = window.matchMedia("(prefers-color-scheme: dark)");
  let choice = "auto";
  try { choice = localStorage.getItem("batchspec-theme") || "auto"; } catch { /* a file without storage */ }
  const theme = (printing = false) => {
    const dark = !printing && (choice === "dark" || (choice === "auto" && wished.matches));
    root.dataset.theme = dark ? "dark" : "light";
    const word = choice === "auto" ? "automatic" : choice;
    $("theme").textContent = `Theme: ${choice}`;
    $("theme").setAttribute("aria-label", `Colour theme: ${word}`);
    for (const paint of repaint) paint();
  };
  $("theme").addEventListener("click", () => {
    choice = { auto: "light", light: "dark", dark: "auto" }[choice] || "auto";
    try { localStorage.setItem("batchspec-theme", choice); } catch { /* as above */ }
    theme();
  });
  wished.addEventListener("change", () => theme());
  theme();

  // ---- filters of the table of rules, copies ----------------------------------------------------
  for (const button of document.querySelectorAll("[data-filter]"))
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll("[data-filter]")) other.setAttribute("aria-pressed", String(other === button));
      for (const row of document.querySelectorAll("#rules tbody tr"))
        row.hidden = button.dataset.filter !== "all" && row.dataset.state !== button.dataset.filter;
    });
  for (const button of document.querySelectorAll("[data-copy]"))
    button.addEventListener("click", async () => {
      const text = $(button.dataset.copy).textContent;
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren($(button.dataset.copy)); button.textContent = "Selected: copy it"; }
    });

  const PAPER = 640; // pixels that a page of paper has room for
  const draws = new Map(), now = []; // the pictures of the findings; what else is drawn without waiting for a frame
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open]):not(.screen)")];
    for (const each of opened) each.open = true;
    theme(true);
    // At once: a frame that is only asked for comes after the paper.
    for (const draw of [...draws.values(), ...now]) draw();
  });
  window.addEventListener("afterprint", () => { for (const each of opened) each.open = false; theme(); });

  if (!data.steps) {
    if (data.latency) {
      const charts = new Bs.Charts({ data: { ...data, buckets: { width: 1, columns: {} }, steps: 0 }, steps: 0 }, () => {});
      charts.latencies();
      repaint.push(() => charts.repaint());
      window.addEventListener("resize", () => charts.resize());
    }
    document.body.dataset.ready = "yes";
    return;
  }

  // ---- the picture and its controls ---------------------------------------------------------------
  const model = Bs.model(data), tip = $("tip"), canvas = $("picture"), slider = $("slider"), box = $("step");
  const picture = new Bs.Picture(canvas, model, { tall: Math.min(560, Math.max(260, window.innerHeight * 0.6)) });
  const charts = new Bs.Charts(model, (from, to) => look(from, to));
  const most = model.steps;
  let waiting = false, at = 0, chosenName = null;

  const paint = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      picture.drawRuler($("ruler"));
      picture.draw();
      $("note").textContent = picture.summarised
        ? `Summary: each column is ${picture.summaryWidth.toLocaleString("en")} steps, its heights are shares of them; a tick is a preemption. Zoom in for single steps.`
        : model.inFull(Math.max(0, Math.floor(picture.view[0])), Math.min(most - 1, Math.ceil(picture.view[1]) - 1)) ? "" : "Of this stretch the page holds no single steps; `batchspec report --from --to` makes one that does.";
    });
  };
  const look = (from, to) => {
    let wide = Math.max(Math.min(8, most), Math.min(most, to - from));
    const middle = (from + to) / 2;
    let a = Math.max(0, Math.min(most - wide, middle - wide / 2));
    picture.view = [a, a + wide];
    charts.show(a, a + wide);
    paint();
  };
  const zoom = (factor, about = (picture.view[0] + picture.view[1]) / 2) => {
    const [a, b] = picture.view, wide = Math.max(Math.min(8, most), Math.min(most, (b - a) * factor));
    const share = (about - a) / (b - a), from = Math.max(0, Math.min(most - wide, about - share * wide));
    look(from, from + wide);
  };
  const pan = (share) => {
    const [a, b] = picture.view, by = (b - a) * share, from = Math.max(0, Math.min(most - (b - a), a + by));
    look(from, from + (b - a));
  };
  const seen = (place) => {
    const [a, b] = picture.view;
    if (place < a || place >= b) look(place - (b - a) / 2, place + (b - a) / 2);
  };

  const go = (place, follow = true) => {
    at = Math.max(0, Math.min(most - 1, Math.round(place)));
    slider.value = at;
    box.value = model.step(at);
    slider.setAttribute("aria-valuetext", `step ${model.step(at)}`);
    picture.cursor = at;
    if (follow) seen(at);
    say();
    paint();
  };

  const say = () => {
    const { width, columns } = data.buckets, bucket = Math.floor(at / width), of = (name) => columns[name] ? columns[name][bucket] : null;
    const found = model.at(at), doing = Bs.KINDS.map((_, kind) => found.filter((i) => model.runs.kind[i] === kind).length);
    const facts = [`Step ${model.step(at).toLocaleString("en")}`];
    if (of("time_ns") !== null) facts[0] += `, ${width > 1 ? "about " : ""}${Bs.time(of("time_ns"))} after the first`;
    if (model.inFull(at, at)) facts.push(`slots: ${Bs.KINDS.map((kind, i) => [doing[i], kind]).filter(([many]) => many).map(([many, kind]) => `${many} ${kind}`).join(", ") || "all empty"}`);
    if (width > 1) facts.push(`over these ${width} steps`);
    facts.push(`${Bs.number(of("prefill") + of("again"))} prefill and ${Bs.number(of("decode"))} decode tokens`);
    facts.push(`${Bs.number(of("running"))} running`, `${Bs.number(of("waiting"))} waiting`);
    if (of("blocks") !== null) facts.push(`${Bs.number(of("blocks"))}${data.limits.kv_blocks ? ` of ${Bs.number(data.limits.kv_blocks)}` : ""} KV blocks`);
    $("now").textContent = facts.join("  ·  ");
    const list = $("who");
    list.replaceChildren();
    for (const i of found.slice(0, 96)) {
      const item = document.createElement("li"), button = document.createElement("button"), kind = Bs.KINDS[model.runs.kind[i]];
      button.type = "button";
      button.className = kind;
      button.textContent = `${model.labels[model.runs.seat[i]]}: ${model.name(model.runs.request[i])}`;
      button.title = `slot ${model.labels[model.runs.seat[i]]}: ${model.name(model.runs.request[i])}, ${kind}`;
      button.addEventListener("click", () => choose(model.runs.request[i]));
      item.append(button);
      list.append(item);
    }
    if (found.length > 96) list.append(Object.assign(document.createElement("li"), { textContent: `and ${found.length - 96} more` }));
  };

  const choose = (index) => {
    chosenName = index === chosenName ? null : index;
    picture.chosen = new Set(chosenName === null ? [] : [chosenName]);
    $("clear").hidden = chosenName === null;
    $("clear").textContent = chosenName === null ? "" : `Show all, not only ${model.name(chosenName)}`;
    paint();
  };
  $("clear").addEventListener("click", () => choose(chosenName));

  let flagAt = -1;
  const nextFinding = (by) => {
    if (!model.findings.length) return;
    flagAt = (flagAt + by + model.findings.length) % model.findings.length;
    show(model.findings[flagAt]);
  };
  const show = (finding) => {
    const wide = Math.min(most, 60);
    look(finding.at - wide * 0.6, finding.at + wide * 0.4);
    picture.flag = finding.at;
    go(finding.at, false);
  };

  const keys = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => look(0, most),
    Home: () => { pan(-1e9); go(0, false); }, End: () => { pan(1e9); go(most - 1, false); }, ",": () => go(at - 1), ".": () => go(at + 1),
    f: () => nextFinding(1), F: () => nextFinding(-1), Escape: () => chosenName !== null && choose(chosenName),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  const hit = (event) => { const frame = canvas.getBoundingClientRect(); return [event.clientX - frame.left, event.clientY - frame.top]; };
  // The wheel scrolls the page; over a focused picture, or with Ctrl, it zooms.
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 800);
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), picture.placeAt(hit(event)[0]));
  }, { passive: false });

  const fingers = new Map();
  let moved = false, pressedAt = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    moved = false;
    pressedAt = event.clientX;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = hit(event);
    if (fingers.has(event.pointerId)) {
      const before = [...fingers.values()], old = fingers.get(event.pointerId);
      fingers.set(event.pointerId, event.clientX);
      const after = [...fingers.values()], [a, b] = picture.view, scale = (b - a) / (picture.width - Bs.GUTTER);
      if (after.length > 1) {
        const was = Math.max(10, Math.abs(before[0] - before[1])), is = Math.max(10, Math.abs(after[0] - after[1]));
        zoom(was / is, picture.placeAt((after[0] + after[1]) / 2 - canvas.getBoundingClientRect().left));
        moved = true;
      } else if (moved || Math.abs(event.clientX - pressedAt) > 3) {
        const by = ((moved ? old : pressedAt) - event.clientX) * scale, from = Math.max(0, Math.min(most - (b - a), a + by));
        moved = true;
        look(from, from + (b - a));
      }
      tip.hidden = true;
      return;
    }
    const i = picture.runAt(x, y);
    tip.hidden = i < 0;
    if (i < 0) return;
    tip.textContent = picture.describe(i);
    tip.style.left = Math.max(6, Math.min(window.innerWidth - tip.offsetWidth - 8, event.clientX + 14)) + "px";
    tip.style.top = (event.clientY + 20 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 16) + "px";
  });
  const lift = (event) => fingers.delete(event.pointerId);
  canvas.addEventListener("pointerup", (event) => {
    lift(event);
    if (moved) return;
    const [x, y] = hit(event);
    if (x < Bs.GUTTER) return;
    const i = picture.runAt(x, y);
    go(Math.floor(picture.placeAt(x)), false);
    if (i >= 0) choose(model.runs.request[i]); else if (chosenName !== null) choose(chosenName);
  });
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(0.35, picture.placeAt(hit(event)[0])));

  for (const [id, act] of Object.entries({
    "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), fit: () => look(0, most), back: () => pan(-0.5), on: () => pan(0.5),
    "finding-next": () => nextFinding(1), "step-back": () => go(at - 1), "step-on": () => go(at + 1),
  })) if ($(id)) $(id).addEventListener("click", act);
  slider.max = most - 1;
  slider.addEventListener("input", () => go(Number(slider.value)));
  box.addEventListener("change", () => go(model.place(Number(box.value))));
  $("find").addEventListener("change", () => {
    const wanted = $("find").value.trim(), index = data.requests.id.indexOf(wanted);
    $("find").setAttribute("aria-invalid", String(Boolean(wanted) && index < 0));
    if (index < 0) return;
    chosenName = null;
    choose(index);
    let first = most, last = -1;
    for (let i = 0; i < model.runs.first.length; i++)
      if (model.runs.request[i] === index) { first = Math.min(first, model.runs.first[i]); last = Math.max(last, model.runs.last[i]); }
    const wide = Math.max(20, (last - first + 1) * 1.3);
    look((first + last - wide) / 2, (first + last + wide) / 2);
    go(first, false);
  });

  // ---- findings: each with its stretch --------------------------------------------------------------
  const stretch = (element) => {
    const finding = data.findings[Number(element.dataset.finding)], a = Math.max(0, finding.at - 16), b = Math.min(most, finding.at + 6);
    const names = new Set(finding.requests), first = [], rest = [];
    model.rows.forEach((_, row) => {
      let involved = false, busy = false;
      for (const i of model.inSight(row, a, b)) { busy = true; involved ||= names.has(model.runs.request[i]); }
      if (involved) first.push(row); else if (busy || model.labels.length <= 8) rest.push(row);
    });
    const rows = [...first, ...rest].slice(0, 12).sort((x, y) => x - y);
    const small = new Bs.Picture(element, model, { rows, view: [a, Math.max(b, a + 8)], tall: 220, most: 18, axis: 18, chosen: first.length ? finding.requests : [], flag: finding.at });
    if (!model.inFull(a, b - 1) || !rows.length) { element.hidden = true; return null; }
    element.style.height = small.height + "px"; // now, so that nothing moves when it is drawn
    return () => small.draw();
  };
  const lazily = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      lazily.unobserve(entry.target);
      draws.get(entry.target)();
      repaint.push(draws.get(entry.target));
    }
  }, { rootMargin: "400px" });
  for (const element of document.querySelectorAll("canvas[data-finding]")) {
    const draw = stretch(element);
    if (draw) { draws.set(element, draw); lazily.observe(element); }
  }
  for (const button of document.querySelectorAll("[data-show]"))
    button.addEventListener("click", () => {
      const finding = data.findings[Number(button.dataset.show)];
      flagAt = model.findings.indexOf(finding);
      show(finding);
      $("picture-section").scrollIntoView();
      canvas.focus({ preventScroll: true });
    });

  charts.build();
  now.push(() => charts.resize(PAPER));
  window.addEventListener("afterprint", () => charts.resize());
  now.push(() => { picture.drawRuler($("ruler")); picture.draw(); });
  repaint.push(paint, () => charts.repaint());
  let late = 0;
  window.addEventListener("resize", () => { clearTimeout(late); late = setTimeout(() => { for (const each of repaint) each(); charts.resize(); }, 120); });
  look(0, most);
  if (model.findings.length) { picture.flag = model.findings[0].at; go(model.findings[0].at, false); } else go(0, false);
  window.batchspecReport = { picture, charts, model, look, go, zoom, state: () => ({ at, view: [...picture.view], summarised: picture.summarised, chosen: chosenName }) };
  requestAnimationFrame(() => requestAnimationFrame(() => { document.body.dataset.ready = "yes"; }));
})();
