// The plots: made by Bokeh from what the page carries, filled with columns, painted light or dark.

const MOST_BARS = 2000; // how many bars a plot has at most; more are summed, or the largest of them taken
const documents = {};

async function embedPlot(id) {
  const views = await Bokeh.embed.embed_item({ ...content.plots[id], target_id: id });
  const roots = views.roots ? views.roots : [views];
  documents[id] = (roots[0] || views).model.document;
  paint(id);
}

const model = (id, name) => documents[id].get_model_by_name(name);
const fill = (id, name, data) => {
  model(id, name).data = data;
};

function onTap(id, name, chosen) {
  const source = model(id, name);
  source.selected.change.connect(() => {
    const [first] = source.selected.indices;
    if (first === undefined) return;
    source.selected.indices = [];
    chosen(first);
  });
}

const isDark = () => document.documentElement.dataset.style === "dark";

function figuresOf(id) {
  return ["memory", "chip", "live", "timeline", "flame", "exchange", "moved", "regions", "compared"]
    .map((name) => model(id, name))
    .filter(Boolean);
}

function paint(id) {
  const [ground, ink, line] = isDark() ? ["#14161a", "#eceef2", "#383d47"] : ["#ffffff", "#1a1c20", "#d5d8de"];
  for (const figure of figuresOf(id)) {
    figure.background_fill_color = ground;
    figure.border_fill_color = ground;
    figure.outline_line_color = line;
    for (const side of ["left", "right", "above", "below", "center"]) {
      for (const part of figure[side]) {
        for (const name of ["axis_label_text_color", "major_label_text_color", "label_text_color"])
          if (name in part) part[name] = ink;
        for (const name of ["axis_line_color", "major_tick_line_color", "minor_tick_line_color"])
          if (name in part) part[name] = line;
        if ("grid_line_color" in part) part.grid_line_color = line;
        if ("background_fill_color" in part) part.background_fill_color = ground;
      }
    }
    const text = model(id, "live_text");
    if (text) text.glyph.text_color = { value: ink };
  }
}

// Numbers from 0 to `count` in stretches of one length, at most MOST_BARS of them: first, last, middle and width.
function stretchesOf(count) {
  const step = Math.max(1, Math.ceil(count / MOST_BARS));
  const [first, last, middle, width] = [[], [], [], []];
  for (let begin = 0; begin < count; begin += step) {
    const end = Math.min(count, begin + step) - 1;
    first.push(begin);
    last.push(end);
    middle.push((begin + end) / 2);
    width.push(end - begin + 1);
  }
  return { step, first, last, middle, width };
}

// The largest of each stretch by one column, as the place of it in the column.
function largestOf(stretches, column) {
  return stretches.first.map((begin, k) => {
    let best = begin;
    for (let place = begin; place <= stretches.last[k]; place++) if (column[place] > column[best]) best = place;
    return best;
  });
}

const sumsSay = (stretches, what) => (stretches.step > 1 ? ` Of each ${stretches.step} ${what} in a row the largest is shown.` : "");

const KINDS = [
  ["sync", ["sync_cycles"]],
  ["external sync", ["external_sync_cycles"]],
  ["host", ["host_cycles"]],
  ["exchange", ["exchange_before_cycles", "exchange_after_cycles"]],
  ["external exchange", ["external_exchange_cycles"]],
  ["compute", ["compute_cycles"]],
];
const cyclesOf = (step, columns) => columns.reduce((sum, column) => sum + numbers("steps", column)[step], 0);

// Where each step begins on the axis of cycles: its turns one after another.
function beginnings() {
  return once("beginnings", () => {
    const total = numbers("steps", "total_cycles");
    const begins = new Float64Array(total.length + 1);
    for (let step = 0; step < total.length; step++) begins[step + 1] = begins[step] + total[step];
    return begins;
  });
}

function stepAt(cycles) {
  const begins = beginnings();
  let [low, high] = [0, begins.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (begins[middle] <= cycles) low = middle;
    else high = middle;
  }
  return low;
}

const colour = (text) => [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16));

// The timeline as an image: what each tile does at each of some times.
function timelineImage(from, until, width, height) {
  const image = new Uint32Array(width * height);
  const paints = Object.fromEntries(
    Object.entries(content.colours).map(([kind, text]) => {
      const [r, g, b] = colour(text);
      return [kind, ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0];
    }),
  );
  const idle = isDark() ? 0xff2a2d33 : 0xffececec;
  const [begins, tiles] = [beginnings(), about.num_tiles];
  const rows = rowsBy("step_tiles", "step", tables.steps.length);
  const [tileOf, computes] = [numbers("step_tiles", "tile"), numbers("step_tiles", "compute_cycles")];
  const turns = numbers("steps", "turns");
  let last = -1;
  const own = new Float64Array(tiles);
  for (let column = 0; column < width; column++) {
    const time = from + ((column + 0.5) * (until - from)) / width;
    if (time < 0 || time >= begins[begins.length - 1]) continue;
    const step = stepAt(time);
    if (step !== last) {
      own.fill(0);
      for (const row of rows(step)) own[tileOf[row]] = computes[row] * turns[step];
      last = step;
    }
    let at = begins[step];
    for (const [kind, columns] of KINDS) {
      const cycles = cyclesOf(step, columns);
      if (time < at + cycles) {
        for (let line = 0; line < height; line++) {
          const tile = Math.min(tiles - 1, Math.floor(((line + 0.5) * tiles) / height));
          const waits = kind === "compute" && time - at > own[tile];
          image[line * width + column] = waits ? idle : paints[kind];
        }
        break;
      }
      at += cycles;
    }
  }
  return image;
}
