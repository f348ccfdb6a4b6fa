// A picture that is moved, enlarged and asked: tiles of it on a canvas, a legend that switches layers, names of points.
// `show` puts it into an element, from the data of `view.py`. `points.js` stands before it, `view.css` styles it.

const COLOURS = {
  dark: { ink: "#f0f0f4", panel: "#16161c", line: "#4a4a56", focus: "#8cc8ff" },
  light: { ink: "#18181c", panel: "#f4f4f6", line: "#9a9aa6", focus: "#0050b0" },
};
const MOST_IMAGES = 160;  // tiles kept, of a megabyte each
const DEEPEST = 256;      // how many times the whole is enlarged at most
const REACH = 14;         // from how many pixels away a point is named

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

// Puts a picture into an element. `redraw`, where there is one, is told what is seen, and gives it drawn anew.
export function show(root, data, redraw = null) {
  const colours = COLOURS[data.style];
  const stage = make("div", { className: "stage" });
  const canvas = make("canvas", { tabIndex: 0 });
  const context = canvas.getContext("2d");
  const zoomed = make("output", { textContent: "1×" });
  const about = make("div", { className: "about", hidden: true });
  about.setAttribute("role", "status");
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "picture");
  canvas.setAttribute("aria-label", `${data.title || "A graph"}: ${data.counts}. Arrow keys move, plus and minus ` +
    "enlarge and shrink, 0 shows the whole; what lies in the middle is named.");

  const off = new Set();
  const images = new Map();
  const view = { x: 0.5, y: 0.5, scale: 1 };
  let width = 1, height = 1, fit = 1, fitted = true, waiting = false, mask = null, shares = null;
  let found = null, byKeys = false, names = true, fresh = null, closed = false;
  const whole = index(data.points, data.points.columns.map((own) => bytes(own).buffer));

  const toScreen = (x, y) => [(x - view.x) * view.scale + width / 2, (y - view.y) * view.scale + height / 2];
  const toWhole = (x, y) => [(x - width / 2) / view.scale + view.x, (y - height / 2) / view.scale + view.y];

  function repaint() {
    if (!waiting && !closed) {
      waiting = true;
      requestAnimationFrame(() => { waiting = false; if (!closed) paint(); });
    }
  }

  function tileOf(level, row, column) {
    const key = `${level} ${row} ${column}`;
    let image = images.get(key);
    if (image) {
      images.delete(key);
    } else {
      image = new Image();
      image.onload = repaint;
      image.src = `data:image/webp;base64,${data.pyramid[level].tiles[row][column]}`;
      if (images.size >= MOST_IMAGES) images.delete(images.keys().next().value);
    }
    images.set(key, image);
    return image;
  }

  function paintLevel(level) {
    const { side } = data.pyramid[level], size = data.tile;
    const pixel = view.scale / side;
    const [left, top] = toWhole(0, 0), [right, bottom] = toWhole(width, height);
    const last = data.pyramid[level].tiles.length - 1;
    const bound = (value) => Math.max(0, Math.min(last, Math.floor((value * side) / size)));
    if (right < 0 || bottom < 0 || left > 1 || top > 1) return;
    for (let row = bound(top); row <= bound(bottom); row++) {
      for (let column = bound(left); column <= bound(right); column++) {
        const image = tileOf(level, row, column);
        if (!image.complete || !image.naturalWidth) continue;
        const [x, y] = toScreen((column * size) / side, (row * size) / side);
        // Half a pixel more, so that no seam is seen between tiles.
        context.drawImage(image, x, y, image.naturalWidth * pixel + 0.5, image.naturalHeight * pixel + 0.5);
      }
    }
  }

  function paintFresh() {
    const [x, y] = toScreen(fresh.window[0], fresh.window[1]);
    context.drawImage(fresh.image, x, y, fresh.window[2] * view.scale, fresh.window[2] * view.scale);
  }

  // A name, of some height, in the middle of a place on the screen, unless others are there.
  const taken = [];
  function write(text, layer, u, v, tall, leader = null) {
    const font = `${tall}px system-ui, sans-serif`;
    Object.assign(context, { font, textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    const half = context.measureText(text).width / 2 + 3;
    if (!leader) {
      // Whole, though what it names be at the edge.
      u = Math.max(half, Math.min(width - half, u));
      v = Math.max(tall * 0.7, Math.min(height - tall * 0.7, v));
    }
    const own = [u - half, v - tall * 0.7, u + half, v + tall * 0.7];
    if (own[2] < 0 || own[3] < 0 || own[0] > width || own[1] > height) return false;
    if (taken.some((one) => own[0] < one[2] && one[0] < own[2] && own[1] < one[3] && one[1] < own[3])) return false;
    taken.push(own);
    context.globalAlpha = off.has(layer) ? 0.35 : 1;
    leader?.();
    Object.assign(context, { strokeStyle: data.ground, lineWidth: 4 });
    context.strokeText(text, u, v);
    context.fillStyle = colours.ink;
    context.fillText(text, u, v);
    context.globalAlpha = 1;
    return true;
  }

  // The names of large layers first, with leaders; those that have no room of their own wait until the picture is
  // enlarged. Then what else is seen, where most of it is.
  function paintLabels() {
    taken.splice(0, Infinity, [0, 0, tools.offsetLeft + tools.offsetWidth, tools.offsetTop + tools.offsetHeight]);
    const written = [];
    for (const { text, layer, letter, start, tip, box } of data.labels) {
      const wanted = Math.max(11, Math.min(22, letter * view.scale)), factor = wanted / letter;
      // All about the leader's start is as large as its letters, however large the picture.
      const [x, y] = toScreen(...start);
      const by = (place) => [x + (place[0] - start[0]) * factor, y + (place[1] - start[1]) * factor];
      const leader = () => {
        Object.assign(context, { strokeStyle: colours.ink, lineWidth: 1 });
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(...by(tip));
        context.stroke();
      };
      const [u, v] = by([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2]);
      if (write(text, layer, u, v, wanted, leader)) written.push(text);
    }
    for (const { name, layer, isLayer, places } of seen) {
      const text = isLayer ? data.layers[name].name : name, tall = isLayer ? 16 : 12;
      if (written.includes(text)) continue;
      if (places.some((place) => inside(toScreen(...place)) && write(text, layer, ...toScreen(...place), tall))) {
        written.push(text);
      }
    }
    canvas.dataset.names = written.length;
    canvas.dataset.named = written.join("; ");
  }

  // What a part shows is looked up when it has come to rest.
  let resting = 0, seen = [];
  const inside = ([x, y]) => x > 0 && y > 0 && x < width && y < height;
  function rest() {
    clearTimeout(resting);
    resting = setTimeout(() => {
      const shown = Math.max(width, height) / view.scale;
      const points = fresh && fresh.index && covers(fresh.window) ? fresh.index : whole;
      seen = view.scale > 1.2 * fit && !closed
        ? points.seen([view.x - shown / 2, view.y - shown / 2, shown], (layer) => !off.has(layer)) : [];
      repaint();
    }, 150);
  }
  // Whether a window holds all that is on the screen.
  const covers = ([left, top, side]) => {
    const [x, y] = toWhole(0, 0), [right, bottom] = toWhole(width, height), slack = 0.02 * side;
    return x > left - slack && y > top - slack && right < left + side + slack && bottom < top + side + slack;
  };

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = data.ground;
    context.fillRect(0, 0, width, height);
    context.imageSmoothingQuality = "high";
    const wanted = data.pyramid.findIndex(({ side }) => side >= view.scale * ratio);
    const finest = wanted < 0 ? data.pyramid.length - 1 : wanted;
    paintLevel(0);
    if (finest) paintLevel(finest);
    const current = fresh && fresh.off === [...off].sort().join();
    if (fresh && !current) paintFresh();
    if (off.size && mask) context.drawImage(mask, ...toScreen(0, 0), view.scale, view.scale);
    if (current) paintFresh();
    if (names) paintLabels();
    if (byKeys) ring(width / 2, height / 2, 5);
    if (found) ring(...toScreen(found.x, found.y), 7);
    const times = view.scale / fit;
    zoomed.textContent = `${times < 10 ? Number(times.toFixed(1)) : Math.round(times)}×`;
    Object.assign(canvas.dataset, { x: view.x.toFixed(5), y: view.y.toFixed(5), times: times.toFixed(3) });
  }

  function ring(x, y, radius) {
    for (const [colour, wide] of [[data.ground, 4], [colours.ink, 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  // What each layer has of the light of each pixel: three layers in the channels of each image.
  async function loadShares() {
    const { side, images: texts } = data.shares;
    const own = document.createElement("canvas");
    own.width = own.height = side;
    const pen = own.getContext("2d", { willReadFrequently: true });
    shares = [];
    for (const text of texts) {
      const image = new Image();
      image.src = `data:image/webp;base64,${text}`;
      await image.decode();
      pen.drawImage(image, 0, 0);
      shares.push(pen.getImageData(0, 0, side, side).data);
    }
  }

  let loading = null;
  async function switched() {
    await (loading ??= loadShares());
    const { side } = data.shares;
    const dark = new Float32Array(side * side);
    for (const layer of off) {
      const own = shares[Math.floor(layer / 3)];
      for (let n = 0, k = layer % 3; n < dark.length; n++, k += 4) dark[n] += own[k];
    }
    const cover = new ImageData(side, side);
    const ground = [1, 3, 5].map((k) => parseInt(data.ground.slice(k, k + 2), 16));
    for (let n = 0; n < dark.length; n++) {
      cover.data.set(ground, 4 * n);
      cover.data[4 * n + 3] = Math.min(255, dark[n]) * 0.95;
    }
    mask = document.createElement("canvas");
    mask.width = mask.height = side;
    mask.getContext("2d").putImageData(cover, 0, 0);
    repaint();
    ask();
  }

  // A picture drawn anew: one is asked for at a time, and what is seen by then when it has come.
  let asked = false, again = false, timer = 0;
  // Tiles are drawn of every link; only where their pixels are too large, or hold layers that are off, is there need.
  const needed = () => off.size > 0 || view.scale * (window.devicePixelRatio || 1) > data.pyramid.at(-1).side;
  function ask() {
    rest();
    if (!redraw || closed) return;
    clearTimeout(timer);
    if (!needed()) { fresh = null; return; }
    timer = setTimeout(async () => {
      if (asked) { again = true; return; }
      asked = true;
      try {
        const side = Math.max(width, height) / view.scale;
        const wanted = { left: view.x - side / 2, top: view.y - side / 2, side,
          size: Math.max(width, height) * Math.min(2, window.devicePixelRatio || 1), off: [...off].sort() };
        const came = await redraw(wanted);
        if (!closed && needed()) {
          fresh = { ...came, index: index(came.points, came.columns), off: wanted.off.join() };
          rest();
          repaint();
        }
      } finally {
        asked = false;
        if (again) { again = false; ask(); }
      }
    }, 120);
  }

  function moved() {
    view.scale = Math.max(fit * 0.5, Math.min(fit * DEEPEST, view.scale));
    view.x = Math.max(0, Math.min(1, view.x));
    view.y = Math.max(0, Math.min(1, view.y));
    fitted = false;
    repaint();
    ask();
  }

  function enlarge(factor, x = width / 2, y = height / 2) {
    const [px, py] = toWhole(x, y);
    view.scale = Math.max(fit * 0.5, Math.min(fit * DEEPEST, view.scale * factor));
    view.x = px - (x - width / 2) / view.scale;
    view.y = py - (y - height / 2) / view.scale;
    moved();
  }

  function showWhole() {
    Object.assign(view, { x: 0.5, y: 0.5, scale: fit });
    moved();
    fitted = true;
  }

  function tell(x, y) {
    const place = toWhole(x, y), wanted = (layer) => !off.has(layer);
    const within = fresh && fresh.window[2] < 1 && [0, 1].every(
      (k) => place[k] >= fresh.window[k] && place[k] <= fresh.window[k] + fresh.window[2]);
    found = (within ? fresh.index : whole).nearest(...place, REACH / view.scale, wanted);
    about.hidden = !found;
    if (found) {
      const number = (value) => value.toLocaleString("en");
      const rows = [["layer", data.layers[found.layer].name]];
      if (found.variable) rows.push(["input", found.variable], ["first read by", found.computeSet]);
      else rows.push(["compute set", found.computeSet]);
      rows.push(["codelet", found.codelet], ["phase", found.phase]);
      if (!found.variable) {
        rows.push(["tile", found.tile < 0 ? "not chosen" : number(found.tile)]);
        rows.push(["cycles", found.cycles < 0 ? "not known" : number(found.cycles)]);
      }
      about.replaceChildren(make("dl", {}, ...rows.flatMap(
        ([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })])));
      const [px, py] = toScreen(found.x, found.y);
      about.style.left = `${Math.max(4, px > width / 2 ? px - about.offsetWidth - 16 : px + 16)}px`;
      about.style.top = `${Math.max(4, Math.min(height - about.offsetHeight - 4, py + 12))}px`;
    }
    repaint();
  }

  // Pointers: one moves, two enlarge.
  const pointers = new Map();
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, place(event));
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone by now */ }
    canvas.classList.add("dragged");
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event), before = pointers.get(event.pointerId);
    byKeys = false;
    if (!before) { tell(...now); return; }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    pointers.set(event.pointerId, now);
    if (other) {
      const apart = (one) => Math.max(1, Math.hypot(one[0] - other[0], one[1] - other[1]));
      enlarge(apart(now) / apart(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else {
      view.x -= (now[0] - before[0]) / view.scale;
      view.y -= (now[1] - before[1]) / view.scale;
      found = null;
      about.hidden = true;
      moved();
    }
  });
  const released = (event) => { pointers.delete(event.pointerId); canvas.classList.toggle("dragged", pointers.size > 0); };
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", released);
  canvas.addEventListener("pointerleave", () => { if (!byKeys) { found = null; about.hidden = true; repaint(); } });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    enlarge(Math.exp(-Math.max(-240, Math.min(240, lines)) / 300), ...place(event));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => enlarge(2, ...place(event)));
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = (0.12 * Math.min(width, height)) / view.scale;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (moves[event.key]) {
      view.x += moves[event.key][0] * step;
      view.y += moves[event.key][1] * step;
      moved();
    } else if (event.key === "+" || event.key === "=") enlarge(1.5);
    else if (event.key === "-" || event.key === "_") enlarge(1 / 1.5);
    else if (event.key === "0" || event.key === "Home") showWhole();
    else return;
    event.preventDefault();
    byKeys = true;
    tell(width / 2, height / 2);
  });

  const button = (text, name, action) => {
    const made = make("button", { type: "button", textContent: text, title: name, onclick: action });
    made.setAttribute("aria-label", name);
    return made;
  };
  const tools = make("div", { className: "tools" }, button("+", "enlarge", () => enlarge(1.5)),
    button("−", "shrink", () => enlarge(1 / 1.5)), button("⤢", "show the whole", showWhole), zoomed);
  stage.append(canvas, tools, about);

  const checkbox = (text, colour, change) => {
    const box = make("input", { type: "checkbox", checked: true, onchange: () => change(box.checked) });
    const parts = colour ? [swatch(colour)] : [];
    return make("label", {}, box, ...parts, make("span", { textContent: text }));
  };
  const swatch = (colour) => {
    const made = make("span", { className: "swatch" });
    made.style.background = colour;
    return made;
  };
  const legend = make("fieldset", { className: "legend" });
  legend.setAttribute("aria-label", "layers shown");
  data.layers.forEach(({ name, colour }, layer) => legend.append(checkbox(name, colour, (on) => {
    off[on ? "delete" : "add"](layer);
    switched();
  })));
  const all = (on) => {
    data.layers.forEach((_, layer) => off[on ? "delete" : "add"](layer));
    legend.querySelectorAll("input").forEach((box) => { box.checked = on; });
    switched();
  };
  const { count, of } = data.points;
  const known = count < of ? `Named is a regular sample of ${count.toLocaleString("en")} of ${of.toLocaleString("en")} ` +
    `points${redraw ? "; enlarged, of those that are seen" : ""}.` : "Every point is named.";
  const panel = make("aside", {}, make("h1", { textContent: data.title || "A graph" }),
    make("p", { textContent: data.counts }), make("h2", { textContent: "Layers" }),
    make("div", { className: "row" }, button("all", "all layers on", () => all(true)),
      button("none", "all layers off", () => all(false))), legend);
  if (data.key.length) {
    panel.append(make("h2", { textContent: "Colours" }), ...data.key.map(
      ({ name, colour }) => make("div", { className: "entry" }, swatch(colour), make("span", { textContent: name }))));
  }
  panel.append(checkbox("names", null, (on) => { names = on; repaint(); }),
    make("p", { textContent: "Drag, or arrow keys: move. Wheel, + and −: enlarge. 0: the whole." }),
    make("p", { className: "known", textContent: known }));

  root.classList.add("codelet-view");
  for (const [name, value] of Object.entries({ ...colours, ground: data.ground })) {
    root.style.setProperty(`--${name}`, value);
  }
  root.replaceChildren(stage, panel);

  const resized = () => {
    const ratio = window.devicePixelRatio || 1;
    width = Math.max(1, stage.clientWidth);
    height = Math.max(1, stage.clientHeight);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    fit = Math.min(width, height);
    if (fitted) view.scale = fit;
    repaint();
    ask();
  };
  const watcher = new ResizeObserver(resized);
  watcher.observe(stage);
  resized();
  return () => { closed = true; clearTimeout(timer); clearTimeout(resting); watcher.disconnect(); };
}
