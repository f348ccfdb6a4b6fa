// What each view shows of the report, given what is chosen.

const stepChoice = (step) => toggle("step", step);
const layerCycles = () =>
  once("layers", () => {
    const own = new Map();
    for (let step = 0; step < tables.steps.length; step++) {
      const layer = cell("steps", "layer", step);
      if (layer) own.set(layer, (own.get(layer) || 0) + numbers("steps", "total_cycles")[step]);
    }
    return own;
  });

const rowsOf = (table, isLeft) => {
  const rows = [];
  for (let row = 0; row < tables[table].length; row++) if (isLeft(row)) rows.push(row);
  return rows;
};

function stepsTable(id) {
  return new Table(
    id,
    [
      textColumn("steps", "name", "step"),
      textColumn("steps", "layer", "layer"),
      textColumn("steps", "phase", "phase"),
      numberColumn("steps", "turns", "turns"),
      numberColumn("steps", "vertices", "vertices"),
      numberColumn("steps", "exchange_before_cycles", "exchange before"),
      numberColumn("steps", "compute_cycles", "compute"),
      numberColumn("steps", "exchange_after_cycles", "exchange after"),
      numberColumn("steps", "sync_cycles", "sync"),
      numberColumn("steps", "total_cycles", "cycles"),
      shareColumn("steps", "balance", "balance"),
      textColumn("steps", "line", "line"),
    ],
    () => rowsOf("steps", stepIsLeft),
    { chosen: (row) => row === state.step, choose: stepChoice, says: "Cycles by step" },
  );
}

// --- summary -------------------------------------------------------------------------------------------

function summaryView() {
  const memory = numbers("tiles", "total_bytes");
  const most = memory.reduce((best, bytes, tile) => (bytes > memory[best] ? tile : best), 0);
  const there = about.num_tiles * about.bytes_per_tile;
  const said = [
    ["vertices", whole(about.num_vertices)],
    ["edges", whole(about.num_edges)],
    ["variables", whole(about.num_variables)],
    ["compute sets", whole(about.num_compute_sets)],
    ["cycles", whole(about.total_cycles)],
    ["time at the clock", (1e6 * about.seconds).toLocaleString("en", { maximumFractionDigits: 1 }) + " µs"],
    ["tile balance", percent(about.tile_balance, 1)],
    ["memory taken", `${whole(about.total_bytes)} (${percent(about.total_bytes, there)})`],
    ["fullest tile", memory.length ? `${most}: ${percent(memory[most], about.bytes_per_tile)}` : "none"],
    ["published or given", percent(about.sourced_cycles, about.total_cycles)],
    ["on fits", percent(about.fitted_cycles, about.total_cycles)],
    ["on guesses", percent(about.guessed_cycles, about.total_cycles)],
  ];
  const list = document.createElement("dl");
  for (const [name, value] of said) {
    const div = document.createElement("div");
    div.append(Object.assign(document.createElement("dt"), { textContent: name }));
    div.append(Object.assign(document.createElement("dd"), { textContent: value }));
    list.append(div);
  }
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.setAttribute("role", "img");
  const shares = Object.entries(about.cycles).filter(([, cycles]) => cycles);
  bar.setAttribute("aria-label", shares.map(([kind, cycles]) => `${kind} ${percent(cycles, about.total_cycles)}`).join(", "));
  for (const [kind, cycles] of shares) {
    const part = document.createElement("span");
    part.style.flexGrow = cycles;
    part.style.background = content.colours[kind];
    part.title = `${kind}: ${whole(cycles)} cycles`;
    bar.append(part);
  }
  const notes = document.createElement("div");
  for (const note of ["of memory, " + about.kept, ...about.notes]) notes.append(Object.assign(document.createElement("p"), { textContent: "Note: " + note, className: "says" }));
  document.getElementById("summary").replaceChildren(list, bar, legendOf(shares.map(([kind, cycles]) => [kind, percent(cycles, about.total_cycles)])), notes);
  const advice = document.getElementById("advice");
  advice.replaceChildren(...advices.map(adviceItem));
  if (!advices.length) advice.replaceWith(Object.assign(document.createElement("p"), { textContent: "Nothing that costs a fiftieth of the program or of a tile was found." }));
  return { tables: [stepsTable("table-summary-steps")] };
}

function legendOf(kinds) {
  const legend = document.createElement("div");
  legend.className = "legend";
  for (const [kind, text] of kinds) {
    const own = document.createElement("span");
    const mark = document.createElement("i");
    mark.style.background = content.colours[kind] || (isDark() ? "#2a2d33" : "#ececec");
    own.append(mark, kind + (text ? " " + text : ""));
    legend.append(own);
  }
  return legend;
}

function adviceItem(advice) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = advice.text;
  button.addEventListener("click", () => {
    for (const name of CHOICES) state[name] = undefined;
    choose({ view: advice.view, search: "", ...advice.chosen });
  });
  const cost = Object.assign(document.createElement("span"), { className: "cost" });
  cost.textContent = `${whole(advice.cost)} ${advice.unit}, ${percent(advice.share, 1)}: `;
  const fix = Object.assign(document.createElement("span"), { className: "fix", textContent: advice.fix });
  item.append(cost, button, fix);
  return item;
}

// --- memory --------------------------------------------------------------------------------------------

const kindColumns = () => content.kinds.map((kind) => kind.replace(/,/g, "").split(" ").join("_") + "_bytes");

// What is on each tile of what is chosen: of a variable, or in a step; else of all.
function chosenBytes() {
  const bytes = new Float64Array(about.num_tiles);
  const row = variableRow(state.variable);
  const moment = state.step === undefined ? -1 : numbers("steps", "moment")[state.step];
  const rows = rowsBy("residents", "occupant", tables.occupants.length);
  const [tile, size] = [numbers("residents", "tile"), numbers("residents", "bytes")];
  for (let occupant = 0; occupant < tables.occupants.length; occupant++) {
    if (row >= 0 && occupant !== cell("variables", "occupant", row)) continue;
    if (moment >= 0 && !isLive(occupant, moment)) continue;
    for (const own of rows(occupant)) bytes[tile[own]] += size[own];
  }
  return bytes;
}

function isLive(occupant, moment) {
  if (numbers("occupants", "is_always_live")[occupant]) return true;
  const [first, last] = [numbers("lives", "first_moment"), numbers("lives", "last_moment")];
  return Array.from(rowsBy("lives", "occupant", tables.occupants.length)(occupant)).some((row) => first[row] <= moment && moment <= last[row]);
}

const CHIP = {
  "memory taken": () => numbers("tiles", "total_bytes"),
  "memory of what is chosen": chosenBytes,
  "cycles computed": () => (state.step === undefined ? numbers("tiles", "compute_cycles") : stepColumn("compute_cycles")),
  "bytes received": () => (state.step === undefined ? numbers("tiles", "received_bytes") : stepColumn("received_bytes")),
  "bytes sent": () => (state.step === undefined ? numbers("tiles", "sent_bytes") : stepColumn("sent_bytes")),
};

function stepColumn(column) {
  const found = new Float64Array(about.num_tiles);
  const [tile, values] = [numbers("step_tiles", "tile"), numbers("step_tiles", column)];
  for (const row of rowsBy("step_tiles", "step", tables.steps.length)(state.step)) found[tile[row]] = values[row];
  return found;
}

function memoryView() {
  const by = document.getElementById("chip-by");
  for (const name of Object.keys(CHIP)) by.append(new Option(name));
  const residents = new Table(
    "table-residents",
    [
      { ...textColumn("occupants", "name", "what"), text: (row) => cell("occupants", "name", numbers("residents", "occupant")[row]) },
      { name: "kind", title: "kind", text: (row) => cell("occupants", "kind", numbers("residents", "occupant")[row]) },
      numberColumn("residents", "address", "address"),
      numberColumn("residents", "bytes", "bytes"),
      { name: "live", title: "live at moments", text: (row) => livesText(numbers("residents", "occupant")[row]) },
    ],
    () => {
      if (state.tile === undefined) return [];
      const [occupant] = [numbers("residents", "occupant")];
      const moment = state.step === undefined ? -1 : numbers("steps", "moment")[state.step];
      return Array.from(rowsBy("residents", "tile", about.num_tiles)(state.tile)).filter(
        (row) => found(cell("occupants", "name", occupant[row])) && (moment < 0 || isLive(occupant[row], moment)),
      );
    },
    {
      sort: { name: "bytes", falling: true },
      says: "What is on the tile",
      chosen: (row) => state.variable !== undefined && numbers("occupants", "variable")[numbers("residents", "occupant")[row]] === state.variable,
      choose: (row) => {
        const variable = numbers("occupants", "variable")[numbers("residents", "occupant")[row]];
        if (variable >= 0) toggle("variable", variable);
      },
    },
  );
  const stretches = stretchesOf(about.num_tiles);
  const total = numbers("tiles", "total_bytes");
  const largest = largestOf(stretches, total);
  const data = { tile: stretches.middle, width: stretches.width, last: stretches.last, total: largest.map((tile) => total[tile]) };
  kindColumns().forEach((column, k) => {
    const own = numbers("tiles", column);
    data["kind" + k] = largest.map((tile) => (own ? own[tile] : 0));
  });
  const draw = () => {
    const values = CHIP[by.value]();
    const [rows, columns, chips] = ["row", "column", "chip"].map((name) => numbers("tiles", name));
    const wide = columns.reduce((most, own) => Math.max(most, own), 0) + 2;
    const tile = Array.from(rows.keys());
    fill("plot-chip", "chip_source", { x: tile.map((k) => columns[k] + chips[k] * wide), y: tile.map((k) => -rows[k]), tile, value: Array.from(values) });
    const colours = model("plot-chip", "chip_colours");
    colours.high = values.reduce((most, own) => Math.max(most, own), 0) || 1;
    model("plot-chip", "chip_source").selected.indices = [];
  };
  by.addEventListener("change", draw);
  return {
    plots: ["plot-memory", "plot-chip"],
    begin: () => {
      fill("plot-memory", "memory_source", data);
      model("plot-memory", "memory_there").location = about.bytes_per_tile;
      onTap("plot-memory", "memory_source", (k) => toggle("tile", largest[k]));
      onTap("plot-chip", "chip_source", (k) => toggle("tile", k));
    },
    update: () => {
      document.getElementById("says-memory").textContent =
        `Of each tile's ${whole(about.bytes_per_tile)} bytes, by kind. Choose a tile to see what is on it.` + sumsSay(stretches, "tiles");
      document.getElementById("title-residents").textContent = state.tile === undefined ? "Choose a tile" : `On tile ${state.tile}: ${whole(total[state.tile])} bytes`;
      draw();
    },
    tables: [residents],
  };
}

function livesText(occupant) {
  if (numbers("occupants", "is_always_live")[occupant]) return "always";
  const [first, last] = [numbers("lives", "first_moment"), numbers("lives", "last_moment")];
  const rows = Array.from(rowsBy("lives", "occupant", tables.occupants.length)(occupant));
  return rows.map((row) => (first[row] === last[row] ? `${first[row]}` : `${first[row]} to ${last[row]}`)).join(", ");
}

// --- liveness ------------------------------------------------------------------------------------------

function livenessView() {
  const live = numbers("moments", "live_bytes");
  const moments = live.length;
  const stretches = stretchesOf(moments);
  const largest = largestOf(stretches, live);
  const always = () => once("always", () => {
    const [is, bytes] = [numbers("occupants", "is_always_live"), numbers("occupants", "bytes")];
    return bytes.reduce((sum, own, k) => sum + (is[k] ? own : 0), 0);
  });
  const peak = () => live.reduce((best, bytes, k) => (bytes > live[best] ? k : best), 0);
  const shown = () => (state.step === undefined ? peak() : numbers("steps", "moment")[state.step]);
  const lineOf = (row) => {
    const variable = variableRow(numbers("occupants", "variable")[row]);
    return variable < 0 ? "" : cell("variables", "line", variable);
  };
  const table = new Table(
    "table-live",
    [
      textColumn("occupants", "name", "what"),
      textColumn("occupants", "kind", "kind"),
      numberColumn("occupants", "bytes", "bytes on all tiles"),
      numberColumn("occupants", "most_bytes", "most on a tile"),
      numberColumn("occupants", "fullest_tile", "that tile"),
      numberColumn("occupants", "tiles", "tiles"),
      { name: "lives", title: "live at moments", text: livesText },
      { name: "line", title: "line", text: lineOf },
    ],
    () => (moments ? rowsOf("occupants", (row) => isLive(row, shown()) && found(cell("occupants", "name", row))) : []),
    {
      sort: { name: "bytes", falling: true },
      says: "What is live",
      chosen: (row) => state.variable !== undefined && numbers("occupants", "variable")[row] === state.variable,
      choose: (row) => {
        const variable = numbers("occupants", "variable")[row];
        if (variable >= 0) toggle("variable", variable);
      },
    },
  );
  return {
    plots: ["plot-live"],
    begin: () => {
      const own = always();
      fill("plot-live", "live_source", {
        moment: stretches.middle,
        last: stretches.last,
        width: stretches.width,
        always: largest.map(() => own),
        others: largest.map((k) => live[k] - own),
        total: largest.map((k) => live[k]),
        name: largest.map((k) => cell("moments", "name", k)),
      });
      if (moments) fill("plot-live", "live_peak", { x: [peak()], y: [live[peak()]], text: [`peak: ${whole(live[peak()])}`] });
      onTap("plot-live", "live_source", (k) => {
        const step = numbers("moments", "step")[largest[k]];
        if (step < tables.steps.length) stepChoice(step);
      });
    },
    update: () => {
      document.getElementById("says-liveness").textContent =
        "Bytes live on all tiles at each moment of the program; what is always live beneath. Choose a moment to see what is live then." + sumsSay(stretches, "moments");
      document.getElementById("title-live").textContent = moments
        ? `Live at moment ${shown()}, ${cell("moments", "name", shown())}: ${whole(live[shown()])} bytes${state.step === undefined ? ", the peak" : ""}`
        : "Nothing runs";
    },
    tables: [table],
  };
}

// --- execution -----------------------------------------------------------------------------------------

const DEPTH_COLOURS = ["#4a6fa5", "#5b8c85", "#8a6fa5", "#a5795b", "#6f8a5b", "#5b7ba5"];

// Scopes over cycles: stretches of steps whose names begin alike, and the steps themselves.
function flames() {
  const begins = beginnings();
  const found = { left: [], right: [], bottom: [], top: [], middle: [], name: [], cycles: [], turns: [], colour: [], step: [], label: [] };
  const add = (first, last, depth, name, step) => {
    const cycles = begins[last] - begins[first];
    if (!cycles) return;
    const turns = step < 0 ? 1 : numbers("steps", "turns")[step];
    const all = begins[begins.length - 1];
    const short = name.split("/").pop() + (turns > 1 ? ` × ${whole(turns)}` : "");
    const row = { left: begins[first], right: begins[last], bottom: depth, top: depth + 1, middle: depth + 0.5, name, cycles, turns,
      colour: DEPTH_COLOURS[depth % DEPTH_COLOURS.length], step, label: cycles / all > short.length / 140 ? short : "" };
    for (const key of Object.keys(found)) found[key].push(row[key]);
  };
  const within = (first, last, depth, prefix) => {
    let begin = first;
    while (begin < last) {
      const path = cell("steps", "name", begin).split("/");
      let end = begin + 1;
      if (path.length <= depth + 1 || cell("steps", "kind", begin) !== "compute") {
        add(begin, end, depth, cell("steps", "name", begin), begin);
      } else {
        const scope = prefix + path[depth];
        while (end < last && cell("steps", "kind", end) === "compute" && cell("steps", "name", end).startsWith(scope + "/")) end++;
        add(begin, end, depth, scope, -1);
        within(begin, end, depth + 1, scope + "/");
      }
      begin = end;
    }
  };
  within(0, tables.steps.length, 0, "");
  return found;
}

function executionView() {
  let all;
  const draw = () => {
    const range = model("plot-execution", "cycles_range");
    const [from, until] = [Math.max(0, range.start), Math.min(beginnings()[tables.steps.length], range.end)];
    if (!(until > from)) return;
    const [width, height] = [1000, Math.min(256, about.num_tiles)];
    const pixels = timelineImage(from, until, width, height);
    const image = Bokeh.require("core/util/ndarray").ndarray(pixels.buffer, { dtype: "uint32", shape: [height, width] });
    fill("plot-execution", "timeline_source", { image: [image], x: [from], y: [-0.5], dw: [until - from], dh: [about.num_tiles] });
  };
  return {
    plots: ["plot-execution"],
    begin: () => {
      all = flames();
      fill("plot-execution", "flame_source", all);
      const range = model("plot-execution", "cycles_range");
      const end = beginnings()[tables.steps.length] || 1;
      range.start = 0;
      range.end = end;
      range.reset_start = 0;
      range.reset_end = end;
      let waiting = null;
      range.change.connect(() => {
        clearTimeout(waiting);
        waiting = setTimeout(draw, 60);
      });
      onTap("plot-execution", "flame_source", (k) => {
        if (all.step[k] >= 0) stepChoice(all.step[k]);
        else {
          range.start = all.left[k];
          range.end = all.right[k];
        }
      });
      document.getElementById("legend-execution").replaceChildren(legendOf([...KINDS.map(([kind]) => kind).filter((kind) => about.cycles[kind]).map((kind) => [kind, ""]), ["waiting", ""]]));
    },
    update: () => {
      document.getElementById("says-execution").textContent =
        "What every tile does, step after step; of a loop each step stands for all its turns. Below, the steps by scope: choose a step, or a scope to enlarge it.";
      const range = model("plot-execution", "cycles_range");
      if (state.step !== undefined && state.step !== executionView.seen) {
        const [left, right] = [beginnings()[state.step], beginnings()[state.step + 1]];
        if (right > left && (right < range.start || left > range.end)) [range.start, range.end] = [left - (right - left), right + (right - left)];
      }
      executionView.seen = state.step;
      draw();
    },
    tables: [stepsTable("table-steps")],
  };
}

// --- exchange ------------------------------------------------------------------------------------------

function exchangeView() {
  const [received, turns] = [numbers("steps", "received_bytes"), numbers("steps", "turns")];
  const bytes = Array.from(received, (own, step) => own * turns[step]);
  const stretches = stretchesOf(bytes.length);
  const largest = largestOf(stretches, bytes);
  const steps = () => (state.step === undefined ? null : state.step);
  const regions = numbers("tiles", "region");
  const names = once("regions", () => {
    const first = [];
    regions.forEach((region, tile) => (first[region] = first[region] || [tile, tile]) && (first[region][1] = tile));
    return first.map(([from, to]) => (from === to ? `${from}` : `${from} to ${to}`));
  });
  const table = new Table(
    "table-moves",
    [
      { name: "variable", title: "variable", text: (row) => cell("variables", "name", variableRow(numbers("moves", "variable")[row])) },
      { name: "step", title: "step", text: (row) => cell("steps", "name", numbers("moves", "step")[row]) },
      { name: "all", title: "bytes, all turns", number: true, value: (row) => numbers("moves", "bytes")[row] * turns[numbers("moves", "step")[row]], text: (row) => whole(numbers("moves", "bytes")[row] * turns[numbers("moves", "step")[row]]) },
      numberColumn("moves", "different_bytes", "different bytes"),
      { name: "copies", title: "times each", number: true, value: (row) => numbers("moves", "bytes")[row] / numbers("moves", "different_bytes")[row], text: (row) => (numbers("moves", "bytes")[row] / numbers("moves", "different_bytes")[row]).toFixed(1) },
    ],
    () => rowsOf("moves", (row) => {
      const [step, variable] = [numbers("moves", "step")[row], numbers("moves", "variable")[row]];
      if (state.variable !== undefined && variable !== state.variable) return false;
      return (steps() === null || step === steps()) && (state.layer === undefined || cell("steps", "layer", step) === state.layer) &&
        found(cell("variables", "name", variableRow(variable)) + " " + cell("steps", "name", step));
    }),
    {
      sort: { name: "all", falling: true },
      says: "Variables that move",
      chosen: (row) => state.variable === numbers("moves", "variable")[row],
      choose: (row) => toggle("variable", numbers("moves", "variable")[row]),
    },
  );
  return {
    plots: ["plot-exchange", "plot-moved", "plot-regions"],
    begin: () => {
      fill("plot-exchange", "exchange_source", {
        step: stretches.middle, last: stretches.last, width: stretches.width.map((own) => 0.9 * own),
        bytes: largest.map((step) => bytes[step]),
        cycles: largest.map((step) => cyclesOf(step, ["exchange_before_cycles", "exchange_after_cycles"])),
        name: largest.map((step) => cell("steps", "name", step)),
      });
      onTap("plot-exchange", "exchange_source", (k) => stepChoice(largest[k]));
    },
    update: () => {
      const chosen = steps();
      document.getElementById("says-exchange").textContent =
        "Bytes that tiles receive from other tiles in each step. Choose a step to see who sends to whom." + sumsSay(stretches, "steps");
      document.getElementById("title-regions").textContent =
        "From region to region, " + (chosen === null ? "all steps and turns" : `one turn of ${cell("steps", "name", chosen)}`);
      drawRegions(chosen, names, turns);
      drawMoved(chosen);
    },
    tables: [table],
  };
}

function drawRegions(chosen, names, turns) {
  const count = names.length;
  const total = new Float64Array(count * count);
  const [step, sender, receiver, bytes] = ["step", "sender", "receiver", "bytes"].map((name) => numbers("traffic", name));
  const add = (row, times) => (total[sender[row] * count + receiver[row]] += times * bytes[row]);
  if (chosen === null) for (let row = 0; row < step.length; row++) add(row, turns[step[row]]);
  else for (const row of rowsBy("traffic", "step", tables.steps.length)(chosen)) add(row, 1);
  const cells = Array.from(total.keys()).filter((k) => total[k]);
  fill("plot-regions", "regions_source", {
    sender: cells.map((k) => Math.floor(k / count)), receiver: cells.map((k) => k % count), bytes: cells.map((k) => total[k]),
    from_tiles: cells.map((k) => names[Math.floor(k / count)]), to_tiles: cells.map((k) => names[k % count]),
  });
  model("plot-regions", "regions_colours").high = total.reduce((most, own) => Math.max(most, own), 0) || 1;
}

function drawMoved(chosen) {
  const [received, sent] = ["received_bytes", "sent_bytes"].map((name) => (chosen === null ? numbers("tiles", name) : stepColumn(name)));
  const stretches = stretchesOf(about.num_tiles);
  const largest = largestOf(stretches, received);
  fill("plot-moved", "moved_source", {
    tile: stretches.middle, last: stretches.last, received: largest.map((k) => received[k]), sent: largest.map((k) => sent[k]),
  });
}

// --- graph ---------------------------------------------------------------------------------------------

function graphView() {
  document.getElementById("picture").innerHTML = content.picture;
  const ofLayer = (table, row) => state.layer === undefined || cell(table, "layer", row) === state.layer;
  const codelet = () => (state.codelet === undefined ? null : cell("codelets", "name", state.codelet));
  const stepOf = once("steps by name", () => new Map(Array.from({ length: tables.steps.length }, (_, k) => [cell("steps", "name", k), k])));
  const chosenSet = () => (state.step === undefined ? null : cell("steps", "name", state.step));
  const vertices = new Table(
    "table-vertices",
    [
      textColumn("vertices", "compute_set", "compute set"), textColumn("vertices", "codelet", "codelet"), textColumn("vertices", "layer", "layer"),
      textColumn("vertices", "phase", "phase"), numberColumn("vertices", "vertices", "vertices"), numberColumn("vertices", "edges", "edges"),
      numberColumn("vertices", "turns", "turns"), numberColumn("vertices", "cycles", "cycles on one worker"), numberColumn("vertices", "tiles", "tiles"),
      textColumn("vertices", "line", "line"),
    ],
    () => rowsOf("vertices", (row) => ofLayer("vertices", row) && (codelet() === null || cell("vertices", "codelet", row) === codelet()) && found(cell("vertices", "compute_set", row) + " " + cell("vertices", "codelet", row))),
    {
      sort: { name: "cycles", falling: true }, says: "Compute sets",
      chosen: (row) => cell("vertices", "compute_set", row) === chosenSet(),
      choose: (row) => {
        const step = stepOf.get(cell("vertices", "compute_set", row));
        if (step !== undefined) stepChoice(step);
      },
    },
  );
  const codelets = new Table(
    "table-codelets",
    [
      textColumn("codelets", "name", "codelet"), numberColumn("codelets", "vertices", "vertices"), numberColumn("codelets", "cycles", "cycles on one worker"),
      numberColumn("codelets", "if_assembly_cycles", "as assembly"), { name: "is_supposed", title: "supposed compiled", text: (row) => (cell("codelets", "is_supposed", row) ? "yes" : "no") },
      textColumn("codelets", "line", "line"),
    ],
    () => rowsOf("codelets", (row) => found(cell("codelets", "name", row))),
    { says: "Codelets", chosen: (row) => row === state.codelet, choose: (row) => toggle("codelet", row) },
  );
  const variables = new Table(
    "table-variables",
    [
      textColumn("variables", "name", "variable"), textColumn("variables", "type", "type"), textColumn("variables", "layer", "layer"), textColumn("variables", "phase", "phase"),
      numberColumn("variables", "bytes", "bytes"), numberColumn("variables", "tiles", "tiles"), numberColumn("variables", "most_bytes", "most on a tile"),
      textColumn("variables", "line", "line"),
    ],
    () => rowsOf("variables", (row) => ofLayer("variables", row) && found(cell("variables", "name", row))),
    {
      sort: { name: "bytes", falling: true }, says: "Variables",
      chosen: (row) => cell("variables", "variable", row) === state.variable, choose: (row) => toggle("variable", cell("variables", "variable", row)),
    },
  );
  const moments = new Table(
    "table-moments",
    [
      { name: "name", title: "what runs", text: (row) => "\u2003".repeat(cell("moments", "depth", row)) + cell("moments", "name", row) },
      numberColumn("moments", "turns", "turns"), numberColumn("moments", "live_bytes", "bytes live"),
    ],
    () => rowsOf("moments", (row) => found(cell("moments", "name", row))),
    {
      says: "Program", chosen: (row) => state.step !== undefined && numbers("steps", "moment")[state.step] === row,
      choose: (row) => {
        const step = numbers("moments", "step")[row];
        if (step >= 0 && step < tables.steps.length) stepChoice(step);
      },
    },
  );
  const placements = new Table(
    "table-placements",
    [
      textColumn("placements", "way", "placed by"), numberColumn("placements", "cycles", "cycles"),
      { name: "is_bound", title: "known", text: (row) => (cell("placements", "is_bound", row) ? "at least" : "exactly") },
      { name: "bytes", title: "bytes on the fullest tile", text: (row) => (cell("placements", "bytes", row) < 0 ? "" : whole(cell("placements", "bytes", row))) },
      { name: "fits", title: "fits", text: (row) => (cell("placements", "fits", row) ? "yes" : "no") },
    ],
    () => rowsOf("placements", () => true),
    { says: "Placements", chosen: (row) => Boolean(cell("placements", "is_chosen", row)), choose: () => {} },
  );
  return { tables: [vertices, codelets, variables, moments, placements] };
}

// --- comparison ----------------------------------------------------------------------------------------

function comparisonView() {
  const [one, other] = content.records.map((own) => own.about);
  const list = document.createElement("dl");
  for (const [name, key, unit] of [["cycles", "total_cycles", ""], ["memory", "total_bytes", " bytes"], ["vertices", "num_vertices", ""], ["compute sets", "num_compute_sets", ""]]) {
    const div = document.createElement("div");
    const ratio = one[key] ? ` (${(other[key] / one[key]).toFixed(2)} of it)` : "";
    div.append(Object.assign(document.createElement("dt"), { textContent: `${name}: ${one.title}, then ${other.title}` }));
    div.append(Object.assign(document.createElement("dd"), { textContent: `${whole(one[key])}${unit}, then ${whole(other[key])}${ratio}` }));
    list.append(div);
  }
  document.getElementById("compared").replaceChildren(list);
  const what = document.getElementById("compare-what");
  const kinds = tables.differences.words.what;
  for (const kind of ["cycles by step", "cycles by layer", "cycles by kind", "memory by kind", "cycles by codelet", "memory by variable"])
    if (kinds.includes(kind)) what.append(new Option(kind));
  const stretches = stretchesOf(tables["tiles compared"].length);
  const draw = () => {
    const unit = what.value.startsWith("memory") ? "bytes" : "cycles";
    const [before, after] = ["before", "after"].map((when) => numbers("tiles compared", `${unit}_${when}`));
    const largest = largestOf(stretches, after);
    fill("plot-compared", "compared_source", { tile: stretches.middle, last: stretches.last, before: largest.map((k) => before[k]), after: largest.map((k) => after[k]) });
    model("plot-compared", "compared_axis").axis_label = unit === "bytes" ? "bytes" : "cycles computed";
  };
  const table = new Table(
    "table-differences",
    [
      textColumn("differences", "name", "name"), numberColumn("differences", "before", "before"), numberColumn("differences", "after", "after"),
      numberColumn("differences", "difference", "difference", (own) => (own > 0 ? "+" : "") + whole(own)), textColumn("differences", "status", "what became of it"),
    ],
    () => rowsOf("differences", (row) => cell("differences", "what", row) === what.value && found(cell("differences", "name", row))),
    { says: "Differences" },
  );
  what.addEventListener("change", () => {
    draw();
    table.update();
  });
  return { plots: ["plot-compared"], update: draw, tables: [table] };
}
