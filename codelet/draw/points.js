// The points that have names: which lies nearest to a place, and what is seen in a window.

const CELLS = 256;        // along each side, of the grid that points are looked up in
const NAME_CELLS = 16;    // along each side of a window, of the grid that says where most of something is
const FEW_LAYERS = 4;     // up to how many layers seen compute sets are named, too
const MOST_COMPUTE_SETS = 8;

// Points in columns, and the points of each cell of a grid side by side.
function index(points, columns) {
  const count = points.count;
  const x = new Uint16Array(columns[0]), y = new Uint16Array(columns[1]);
  const group = new Uint32Array(columns[2]), tile = new Int32Array(columns[3]), cycles = new Float32Array(columns[4]);
  const first = new Uint32Array(CELLS * CELLS + 1), order = new Uint32Array(count);
  const cell = (n) => (y[n] >> 8) * CELLS + (x[n] >> 8);
  for (let n = 0; n < count; n++) first[cell(n) + 1]++;
  for (let c = 0; c < CELLS * CELLS; c++) first[c + 1] += first[c];
  const free = first.slice();
  for (let n = 0; n < count; n++) order[free[cell(n)]++] = n;
  const [left, top, side] = points.window;

  // The nearest point to a place within a reach, both in shares of the whole, of those that are wanted; or null.
  function nearest(px, py, reach, wanted) {
    const u = ((px - left) / side) * 65536, v = ((py - top) / side) * 65536, r = (reach / side) * 65536;
    const bound = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor(value / 256)));
    let best = -1, least = r * r;
    for (let row = bound(v - r); row <= bound(v + r); row++) {
      for (let column = bound(u - r); column <= bound(u + r); column++) {
        for (let k = first[row * CELLS + column]; k < first[row * CELLS + column + 1]; k++) {
          const n = order[k], away = (x[n] + 0.5 - u) ** 2 + (y[n] + 0.5 - v) ** 2;
          if (away <= least && wanted(points.groups[group[n]][0])) { best = n; least = away; }
        }
      }
    }
    if (best < 0) return null;
    const [layer, computeSet, codelet, phase, variable] = points.groups[group[best]];
    return { x: left + ((x[best] + 0.5) / 65536) * side, y: top + ((y[best] + 0.5) / 65536) * side,
      layer, computeSet, codelet, phase, variable, tile: tile[best], cycles: cycles[best] };
  }

  // What is seen in a window, in shares of the whole: where most points of each layer and compute set are that is wanted
  // and has enough of them, layers first, of both the largest first.
  function seen(window, wanted) {
    const tally = points.groups.map(() => new Map());
    const grid = window[2] / NAME_CELLS, shift = [left - window[0], top - window[1]];
    const counts = new Uint32Array(points.groups.length);
    let total = 0;
    for (let n = 0; n < count; n++) {
      const column = Math.floor((((x[n] + 0.5) / 65536) * side + shift[0]) / grid);
      const row = Math.floor((((y[n] + 0.5) / 65536) * side + shift[1]) / grid);
      if (row < 0 || column < 0 || row >= NAME_CELLS || column >= NAME_CELLS || !wanted(points.groups[group[n]][0])) continue;
      const own = tally[group[n]], at = row * NAME_CELLS + column;
      own.set(at, (own.get(at) || 0) + 1);
      counts[group[n]]++;
      total++;
    }
    const gather = (key, least) => {
      const named = new Map();
      points.groups.forEach((about, number) => {
        if (!counts[number]) return;
        const name = about[key];
        if (!named.has(name)) named.set(name, { name, layer: about[0], isLayer: key === 0, count: 0, cells: new Map() });
        const one = named.get(name);
        one.count += counts[number];
        for (const [at, much] of tally[number]) one.cells.set(at, (one.cells.get(at) || 0) + much);
      });
      const found = [...named.values()].filter((one) => one.count >= Math.max(1, least * total));
      for (const one of found) {
        // The fullest cells, of which the first that has room is taken.
        one.places = [...one.cells].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 12).map(([at]) => [
          window[0] + ((at % NAME_CELLS) + 0.5) * grid, window[1] + (Math.floor(at / NAME_CELLS) + 0.5) * grid]);
      }
      return found.sort((a, b) => b.count - a.count);
    };
    const layers = gather(0, 1 / 200);
    return layers.length > FEW_LAYERS ? layers : [...layers, ...gather(1, 1 / 50).slice(0, MOST_COMPUTE_SETS)];
  }
  return { nearest, seen };
}
