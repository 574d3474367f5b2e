(() => { // the page of a run
  const { $, $$, data, root, say, plural, save, start } = common;

  // ------------------------------------------------------------------------------------------------ points
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer;
  const clusters = new Map(data.clusters.map((c) => [`${c.cluster} ${c.silo}`, c]));
  const SHAPES = 4, COLOURS = 8, MARGIN = 14;
  const picked = new Set();
  let view = data.views[0], colours, sprites = new Map();

  class Panel {
    constructor(canvas) {
      const about = data.points[Number(canvas.dataset.silo)];
      Object.assign(this, { canvas, silo: about.silo, n: about.n, dirty: true, seen: false, cursor: -1, medians: {} });
      this.row = new Uint32Array(bytes(about.row));
      this.cluster = new Uint16Array(bytes(about.cluster));
      this.sure = about.sure && new Uint8Array(bytes(about.sure));
      this.places = Object.fromEntries(data.views.map((name) => [name, new Uint16Array(bytes(about[name]))]));
      this.numbers = [...new Set(this.cluster)].sort((a, b) => a - b);
      this.about = new Map(this.numbers.map((j) => [j, clusters.get(`${j} ${this.silo}`)]));
      this.listen();
    }
    measure() {
      const { width, height } = this.canvas.getBoundingClientRect();
      const ratio = Math.min(devicePixelRatio || 1, 3);
      if (width !== this.width || height !== this.height || ratio !== this.ratio) {
        Object.assign(this, { width, height, ratio });
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
      }
    }
    across(place) { return MARGIN + place / 65535 * (this.width - 2 * MARGIN); }
    down(place) { return this.height - MARGIN - place / 65535 * (this.height - 2 * MARGIN); }
    x(i) { return this.across(this.places[view][i]); }
    y(i) { return this.down(this.places[view][this.n + i]); }
    draw() {
      this.measure();
      this.dirty = false;
      if (!this.width) return;
      const { canvas, ratio, n } = this, { width, height } = canvas, pen = canvas.getContext("2d", { willReadFrequently: true }); // its pixels are put, not drawn
      const size = n > 2500 ? 2 : n > 800 ? 2.6 : 3.2;
      const image = pen.createImageData(width, height), pixels = image.data;
      new Uint32Array(pixels.buffer).fill(colours.ground);
      const marks = new Map(this.numbers.map((j) => [j, sprite(j, size, ratio)]));
      for (const bright of picked.size ? [false, true] : [true]) {
        for (let i = 0; i < n; i++) { // pixel by pixel: far quicker than a hundred thousand calls of drawImage
          const mark = marks.get(this.cluster[i]);
          if (picked.size && picked.has(mark.cluster) !== bright) continue;
          const { side, cover } = mark, [r, g, b] = bright ? mark.colour : colours.rgb.faint;
          const left = Math.round(this.x(i) * ratio - side / 2), top = Math.round(this.y(i) * ratio - side / 2);
          for (let v = 0, p = 0; v < side; v++) {
            for (let u = 0, q = 4 * ((top + v) * width + left); u < side; u++, p++, q += 4) {
              const a = cover[p] / 255;
              if (!a) continue;
              pixels[q] += (r - pixels[q]) * a;
              pixels[q + 1] += (g - pixels[q + 1]) * a;
              pixels[q + 2] += (b - pixels[q + 2]) * a;
            }
          }
        }
      }
      pen.putImageData(image, 0, 0);
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.font = "600 13px system-ui, sans-serif";
      pen.textAlign = "center"; pen.textBaseline = "middle"; pen.lineJoin = "round";
      const middles = this.middles();
      this.numbers.forEach((j, place) => {
        if (picked.size && !picked.has(j)) return;
        const [x, y] = middles[place], here = place === this.cursor && document.activeElement === canvas;
        pen.lineWidth = 4; pen.strokeStyle = colours.surface; pen.strokeText(String(j), x, y);
        pen.fillStyle = colours.ink; pen.fillText(String(j), x, y);
        if (here) { pen.lineWidth = 2.5; pen.strokeStyle = colours.accent; pen.strokeRect(x - 13, y - 12, 26, 24); }
      });
    }
    middles() {
      const places = this.places[view], median = (list) => Uint16Array.from(list).sort()[list.length >> 1];
      this.medians[view] ??= this.numbers.map((j) => {
        const mine = [...this.cluster.keys()].filter((i) => this.cluster[i] === j);
        return [median(mine.map((i) => places[i])), median(mine.map((i) => places[this.n + i]))];
      });
      return this.medians[view].map(([x, y]) => [this.across(x), this.down(y)]);
    }
    nearest(x, y, reach = 12) {
      if (!this.width) this.draw(); // a pointer may come before the first picture
      let best = -1, least = reach * reach;
      for (let i = 0; i < this.n; i++) {
        const dx = this.x(i) - x, dy = this.y(i) - y, d = dx * dx + dy * dy;
        if (d < least) { least = d; best = i; }
      }
      return best;
    }
    inside(left, top, right, bottom) {
      // clusters with a tenth of their points in the box; where none has, the one with most points there
      const all = new Map(), within = new Map();
      for (let i = 0; i < this.n; i++) {
        const j = this.cluster[i], x = this.x(i), y = this.y(i);
        all.set(j, (all.get(j) || 0) + 1);
        if (x >= left && x <= right && y >= top && y <= bottom) within.set(j, (within.get(j) || 0) + 1);
      }
      const many = [...within].filter(([j, count]) => count >= all.get(j) / 10).map(([j]) => j);
      const most = [...within].sort((a, b) => b[1] - a[1]).slice(0, 1).map(([j]) => j);
      return many.length ? many : most;
    }
    listen() {
      const canvas = this.canvas, box = canvas.parentElement.querySelector(".brush");
      const at = (event) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
      let start = null;
      const rectangle = ([x, y]) => [Math.min(x, start[0]), Math.min(y, start[1]), Math.max(x, start[0]), Math.max(y, start[1])];
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button !== 0 || event.pointerType === "touch") return;
        start = at(event);
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointermove", (event) => {
        const here = at(event);
        if (!start) { hover(this, this.nearest(...here), event); return; }
        const [left, top, right, bottom] = rectangle(here);
        hover(this, -1);
        box.hidden = false;
        Object.assign(box.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
      });
      canvas.addEventListener("pointerup", (event) => {
        if (!start) return;
        const edges = rectangle(at(event)), moved = edges[2] - edges[0] + edges[3] - edges[1];
        start = null;
        box.hidden = true;
        if (moved < 6) return; // a click
        pick(this.inside(...edges), event.shiftKey);
        this.brushed = true;
      });
      canvas.addEventListener("pointercancel", () => { start = null; box.hidden = true; });
      canvas.addEventListener("pointerleave", () => hover(this, -1));
      canvas.addEventListener("click", (event) => {
        if (this.brushed) { this.brushed = false; return; }
        const i = this.nearest(...at(event), event.pointerType === "touch" ? 24 : 12);
        if (i < 0) pick([]);
        else toggle(this.cluster[i]);
      });
      canvas.addEventListener("focus", () => this.draw());
      canvas.addEventListener("blur", () => { this.cursor = -1; this.draw(); });
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (step) {
          const m = this.numbers.length;
          this.cursor = this.cursor < 0 ? (step > 0 ? 0 : m - 1) : (this.cursor + step + m) % m;
          this.draw();
          say(this.describe(this.numbers[this.cursor]));
        } else if ((event.key === "Enter" || event.key === " ") && this.cursor >= 0) {
          toggle(this.numbers[this.cursor]);
        } else return;
        event.preventDefault();
      });
    }
    describe(j) {
      const c = this.about.get(j);
      if (!c) return `Cluster ${j}`;
      const name = c.name ? ` (${c.name})` : "", more = c.differences.length ? `: ${c.differences.join(", ")}` : "";
      return `Cluster ${j}${name}, ${c.size} rows${more}`;
    }
  }

  // How much of each pixel the mark of a cluster covers, from 0 to 255.
  function sprite(cluster, size, ratio) {
    const name = `${cluster} ${size} ${ratio}`;
    if (sprites.has(name)) return sprites.get(name);
    const side = Math.ceil((2.4 * size + 1) * ratio), mark = document.createElement("canvas");
    mark.width = mark.height = side;
    const pen = mark.getContext("2d");
    pen.translate(side / 2, side / 2);
    pen.scale(ratio * size, ratio * size);
    pen.globalAlpha = 0.85;
    pen.beginPath();
    const shape = Math.floor(cluster / COLOURS) % SHAPES;
    if (shape === 0) pen.arc(0, 0, 1, 0, 2 * Math.PI);
    if (shape === 1) pen.rect(-0.9, -0.9, 1.8, 1.8);
    if (shape === 2) { pen.moveTo(0, -1.1); pen.lineTo(1.1, 0.9); pen.lineTo(-1.1, 0.9); }
    if (shape === 3) { pen.moveTo(0, -1.2); pen.lineTo(1.2, 0); pen.lineTo(0, 1.2); pen.lineTo(-1.2, 0); }
    pen.fill();
    const cover = pen.getImageData(0, 0, side, side).data.filter((_, i) => i % 4 === 3);
    const made = { cluster, side, cover, colour: colours.rgb[`c${cluster % COLOURS}`] };
    sprites.set(name, made);
    return made;
  }

  function hover(panel, i, event) {
    const tip = $("#tip");
    tip.hidden = i < 0;
    if (i < 0) return;
    const j = panel.cluster[i], percent = panel.sure ? panel.sure[i] : 100;
    // where probabilities are not calibrated, only that two clusters are about as near can be said
    const sure = data.calibrated ? `; probability ${(percent / 100).toFixed(2)}` : percent < 60 ? "; about as near to another cluster" : "";
    const head = document.createElement("b");
    head.textContent = `${panel.silo}, row ${panel.row[i]}`;
    tip.replaceChildren(head, `${panel.describe(j)}${sure}`);
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  }

  const panels = $$("canvas[data-silo]").map((canvas) => new Panel(canvas));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const panel = panels.find((one) => one.canvas === entry.target);
      panel.seen = entry.isIntersecting;
      if (panel.seen && panel.dirty) panel.draw();
    }
  }, { rootMargin: "200px" });
  const resize = new ResizeObserver(() => redraw());
  panels.forEach((panel) => watch.observe(panel.canvas));
  if (panels.length) resize.observe($(".panels"));

  let waiting = false;
  function redraw() {
    panels.forEach((panel) => { panel.dirty = true; });
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      panels.forEach((panel) => { if (panel.seen) panel.draw(); });
    });
  }
  function repaint() {
    const style = getComputedStyle(root), of = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = ["surface", "ink", "soft", "faint", "accent", "line", ...Array.from({ length: COLOURS }, (_, i) => `c${i}`)];
    colours = Object.fromEntries(names.map((name) => [name, of(name)]));
    colours.rgb = Object.fromEntries(names.map((name) => [name, [1, 3, 5].map((i) => parseInt(colours[name].slice(i, i + 2), 16))]));
    colours.ground = new Uint32Array(Uint8Array.from([...colours.rgb.surface, 255]).buffer)[0];
    sprites = new Map();
    redraw();
  }

  if (data.views.length > 1) {
    $("#views").hidden = false;
    $("#views").addEventListener("change", (event) => { view = event.target.value; explain(); redraw(); });
  }
  function explain() {
    const about = $("#about-view");
    const rows = data.view === "mixture" ? "rows of all silos together, in coordinates in which clusters are round" : "projected rows of all silos together";
    if (about) about.textContent = view === "map"
      ? `The map (t-SNE of the ${rows}) keeps neighbours together; distances between groups and their sizes mean little.`
      : `The principal plane of the ${rows}: a true view, but only two of its directions.`;
  }
  explain();

  // ----------------------------------------------------------------------------------------------- picking
  function pick(list, add = false) {
    if (!add) picked.clear();
    list.forEach((cluster) => picked.add(cluster));
    show();
  }
  function toggle(cluster) {
    if (!picked.delete(cluster)) picked.add(cluster);
    show();
  }
  function show() {
    for (const button of $$(".pick")) button.setAttribute("aria-pressed", String(picked.has(Number(button.dataset.cluster))));
    const rows = data.clusters.filter((c) => picked.has(c.cluster)).reduce((sum, c) => sum + c.rows, 0);
    const numbers = [...picked].sort((a, b) => a - b).join(", ");
    const words = picked.size ? `${picked.size === 1 ? "Cluster" : "Clusters"} ${numbers}: ${rows < 5 ? "< 5 rows" : plural(rows, "row")}` : "";
    if ($("#picked")) $("#picked").textContent = words;
    if ($("#clear")) $("#clear").hidden = !picked.size;
    filter();
    redraw();
  }
  function filter() {
    const find = $("#find") ? $("#find").value.trim().toLowerCase() : "";
    let shown = 0, all = 0;
    for (const row of $$("#cluster-table tbody tr")) {
      const fits = !picked.size || picked.has(Number(row.dataset.cluster));
      row.hidden = !(fits && (!find || row.textContent.toLowerCase().includes(find)));
      shown += !row.hidden;
      all += 1;
    }
    if ($("#counted")) $("#counted").textContent = shown < all ? `${shown} of ${plural(all, "cluster")} shown` : plural(all, "cluster");
  }
  for (const button of $$(".pick")) button.addEventListener("click", () => toggle(Number(button.dataset.cluster)));
  if ($("#clear")) $("#clear").addEventListener("click", () => pick([]));
  if ($("#find")) $("#find").addEventListener("input", filter);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && picked.size) { pick([]); say("All clusters shown"); } });
  filter();

  // ------------------------------------------------------------------------------------------------ rounds
  const NS = "http://www.w3.org/2000/svg";
  const element = (name, attributes, text) => {
    const one = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (text !== undefined) one.textContent = text;
    return one;
  };
  const short = (value) => value === 0 ? "0" : Math.abs(value) < 0.01 || Math.abs(value) >= 1e5
    ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(3)));
  function ticks(low, high, count) { // round numbers between two values
    const least = (high - low) / count, power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }
  function chart(box) {
    const width = box.clientWidth, height = box.clientHeight, left = 52, right = 12, top = 10, bottom = 28;
    const names = box.dataset.lines.split(" "), log = "log" in box.dataset, rounds = data.rounds;
    const usable = (value) => Number.isFinite(value) && (!log || value > 0);
    const scale = (value) => log ? Math.log10(value) : value;
    const values = rounds.flatMap((r) => names.map((name) => r[name])).filter(usable).map(scale);
    if (log && data.tol > 0) values.push(scale(data.tol));
    if (!values.length || !width) return;
    let low = Math.min(...values), high = Math.max(...values);
    if (log) { low = Math.floor(low); high = Math.ceil(high); }
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) { low -= 0.5; high += 0.5; }
    const first = rounds[0].round_no, last = rounds.at(-1).round_no;
    const x = (round) => left + (last > first ? (round - first) / (last - first) : 0.5) * (width - left - right);
    const y = (value) => top + (high - value) / (high - low) * (height - top - bottom);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of log ? ticks(low, high, Math.min(high - low, 6)).filter(Number.isInteger) : ticks(low, high, 5)) {
      svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
      svg.append(element("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, short(log ? 10 ** tick : tick)));
    }
    const marks = last > first ? ticks(first, last, Math.max(2, Math.floor(width / 90))).filter(Number.isInteger) : [first];
    for (const round of marks) svg.append(element("text", { x: x(round), y: height - 8, "text-anchor": "middle" }, round));
    if (log && data.tol > 0) {
      svg.append(element("line", { class: "rule", x1: left, x2: width - right, y1: y(scale(data.tol)), y2: y(scale(data.tol)) }));
      svg.append(element("text", { x: left + 6, y: y(scale(data.tol)) - 6 }, `tol ${short(data.tol)}`));
    }
    const dots = names.map((name, place) => {
      const points = rounds.filter((r) => usable(r[name])).map((r) => `${x(r.round_no).toFixed(1)} ${y(scale(r[name])).toFixed(1)}`);
      const kind = "ab"[place];
      svg.append(element("path", { class: kind, d: `M${points.join("L")}` }));
      const dot = element("circle", { class: kind, r: 4, visibility: "hidden" });
      return dot;
    });
    svg.append(...dots);
    const out = $("output", box.parentElement);
    svg.addEventListener("pointermove", (event) => {
      const at = (event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width * width;
      const near = rounds.reduce((a, b) => Math.abs(x(b.round_no) - at) < Math.abs(x(a.round_no) - at) ? b : a);
      names.forEach((name, place) => {
        const there = usable(near[name]);
        dots[place].setAttribute("visibility", there ? "visible" : "hidden");
        if (there) { dots[place].setAttribute("cx", x(near.round_no)); dots[place].setAttribute("cy", y(scale(near[name]))); }
      });
      out.textContent = `round ${near.round_no}: ${names.map((name) => near[name] === null ? "–" : near[name].toPrecision(3)).join(" / ")}`;
    });
    svg.addEventListener("pointerleave", () => { out.textContent = ""; dots.forEach((dot) => dot.setAttribute("visibility", "hidden")); });
    box.replaceChildren(svg);
  }
  // ------------------------------------------------------------------------------------------------ saving
  const STYLE = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "font-size", "font-weight", "opacity"];
  const SHAPE = [
    (x, y, r) => element("circle", { cx: x, cy: y, r }),
    (x, y, r) => element("rect", { x: x - 0.9 * r, y: y - 0.9 * r, width: 1.8 * r, height: 1.8 * r }),
    (x, y, r) => element("path", { d: `M${x} ${y - 1.1 * r}L${x + 1.1 * r} ${y + 0.9 * r}L${x - 1.1 * r} ${y + 0.9 * r}Z` }),
    (x, y, r) => element("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.2 * r} ${y}L${x} ${y + 1.2 * r}L${x - 1.2 * r} ${y}Z` }),
  ];
  const near = (value) => Math.round(10 * value) / 10;
  function sheet(width, height) { // an empty picture on paper of its own
    const svg = element("svg", { xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 13 });
    svg.append(element("rect", { width, height, fill: colours.surface }));
    return svg;
  }
  function marked(cluster, x, y, r) {
    const one = SHAPE[Math.floor(cluster / COLOURS) % SHAPES](near(x), near(y), r);
    one.setAttribute("fill", colours[`c${cluster % COLOURS}`]);
    return one;
  }
  const title = (cluster) => { const one = data.found[cluster]; return one && one.name ? `${cluster} ${one.name}` : String(cluster); };
  function legend(svg, top) {
    data.found.forEach((one, i) => {
      svg.append(marked(one.cluster, 20, top + 20 * i, 5));
      svg.append(element("text", { x: 34, y: top + 4 + 20 * i, fill: colours.ink }, title(one.cluster)));
    });
  }
  const FIGURES = {
    shares() {
      const wide = 760, left = 250, line = 26, svg = sheet(wide, 30 + line * data.silos.length + 20 * data.found.length);
      data.silos.forEach((one, i) => {
        const top = 12 + line * i;
        svg.append(element("text", { x: left - 10, y: top + 15, "text-anchor": "end", fill: colours.ink }, one.silo.length > 34 ? `${one.silo.slice(0, 33)}…` : one.silo));
        let x = left;
        one.shares.forEach((share, j) => {
          const width = share * (wide - left - 90);
          if (!share) return;
          svg.append(element("rect", { x: near(x), y: top, width: near(width), height: line - 6, fill: colours[`c${j % COLOURS}`] }));
          if (share >= 0.045) svg.append(element("text", { x: near(x + width / 2), y: top + 15, "text-anchor": "middle", fill: LIGHT.has(j % COLOURS) ? "#000000" : "#ffffff" }, j));
          x += width;
        });
        svg.append(element("text", { x: wide - 80, y: top + 15, fill: colours.soft }, plural(one.rows, "row")));
      });
      legend(svg, 22 + line * data.silos.length + 6);
      return svg;
    },
    maps() {
      const side = 260, columns = Math.min(3, panels.length), lines = Math.ceil(panels.length / columns);
      const svg = sheet(columns * (side + 16) + 16, lines * (side + 40) + 20 * data.found.length + 24);
      panels.forEach((panel, t) => {
        const left = 16 + (t % columns) * (side + 16), top = 30 + Math.floor(t / columns) * (side + 40);
        svg.append(element("text", { x: left, y: top - 8, "font-weight": 600, fill: colours.ink }, panel.silo.length > 36 ? `${panel.silo.slice(0, 35)}…` : panel.silo));
        svg.append(element("rect", { x: left, y: top, width: side, height: side, fill: "none", stroke: colours.line }));
        const inner = side - 2 * MARGIN, places = panel.places[view];
        for (let i = 0; i < panel.n; i++) {
          const x = left + MARGIN + places[i] / 65535 * inner, y = top + side - MARGIN - places[panel.n + i] / 65535 * inner;
          svg.append(marked(panel.cluster[i], x, y, 2.2));
        }
      });
      legend(svg, lines * (side + 40) + 24);
      return svg;
    },
    chart(name) {
      const drawn = $(`.chart[data-name="${name}"] svg`), { width, height } = drawn.viewBox.baseVal;
      const svg = sheet(width, height), copy = drawn.cloneNode(true);
      const from = $$("*", drawn);
      $$("*", copy).forEach((one, i) => {
        const style = getComputedStyle(from[i]);
        one.removeAttribute("class");
        for (const key of STYLE) if (style.getPropertyValue(key)) one.setAttribute(key, style.getPropertyValue(key));
      });
      svg.append(...copy.childNodes);
      return svg;
    },
  };
  const LIGHT = new Set([1, 2, 4, 6]); // colours on which black is read best
  // what a spreadsheet would run gets a quote in front, as `as_csv` has it; numbers stay
  const NUMBER = /^[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?$/i;
  const inert = (text, bare = text.replace(/^'+/, "")) => (/^[=+\-@\t\r]/.test(bare) && !NUMBER.test(bare) ? `'${text}` : text);
  const cell = (value) => /[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
  function labels() {
    const lines = ["silo,row,cluster,name"];
    for (const panel of panels) {
      for (let i = 0; i < panel.n; i++) {
        const j = panel.cluster[i], one = data.found[j];
        lines.push([inert(panel.silo), panel.row[i], j, one ? inert(one.name) : ""].map(cell).join(","));
      }
    }
    return `${lines.join("\n")}\n`;
  }
  const stem = data.title.replace(/[^\w.-]+/g, "-").slice(0, 60) || "run";
  for (const button of $$("[data-save]")) {
    button.addEventListener("click", () => {
      const what = button.dataset.save;
      if (what === "labels") { save(`${stem}-labels.csv`, "text/csv", labels()); return; }
      const svg = FIGURES[what] ? FIGURES[what]() : FIGURES.chart(what);
      save(`${stem}-${what}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(svg));
    });
  }

  const charts = $$(".chart");
  const fit = new ResizeObserver((entries) => entries.forEach((entry) => chart(entry.target)));
  charts.forEach((box) => fit.observe(box));

  start({ repaint, print: () => panels.forEach((panel) => panel.draw()) });
})();
