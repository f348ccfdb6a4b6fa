// What is chosen, and who is told of it. The address of the page holds it, so that it can be copied.

const VIEWS = ["summary", "memory", "liveness", "execution", "exchange", "graph"];
if (content.records.length > 1) VIEWS.unshift("comparison");
const CHOICES = ["step", "tile", "variable", "codelet", "layer"];
const state = { view: VIEWS[0], search: "" };
const listeners = [];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.view = VIEWS.includes(given.get("view")) ? given.get("view") : VIEWS[0];
  state.search = given.get("search") || "";
  for (const name of CHOICES) {
    const value = given.get(name);
    state[name] = value === null ? undefined : name === "layer" ? value : Number(value);
  }
  if (!(state.step < tables.steps.length)) state.step = undefined;
  if (!(state.tile < about.num_tiles)) state.tile = undefined;
  if (!(state.codelet < tables.codelets.length)) state.codelet = undefined;
  if (variableRow(state.variable) < 0) state.variable = undefined;
}

function writeAddress() {
  const given = new URLSearchParams();
  given.set("view", state.view);
  if (chosenRecord) given.set("record", chosenRecord);
  if (state.search) given.set("search", state.search);
  for (const name of CHOICES) if (state[name] !== undefined) given.set(name, state[name]);
  // Within a notebook's cell a page has no address.
  if (location.protocol !== "about:") history.replaceState(null, "", "#" + given);
}

function choose(changes) {
  Object.assign(state, changes);
  writeAddress();
  for (const tell of listeners) tell();
}

// Chooses, or gives up what was chosen already.
const toggle = (name, value) => choose({ [name]: state[name] === value ? undefined : value });

const variableRow = (number) => (number === undefined ? -1 : numbers("variables", "variable").indexOf(number));

function chosenText(name) {
  if (name === "step") return "step " + cell("steps", "name", state.step);
  if (name === "variable") return "variable " + cell("variables", "name", variableRow(state.variable));
  if (name === "codelet") return "codelet " + cell("codelets", "name", state.codelet);
  return name + " " + state[name];
}

const found = (text) => !state.search || text.toLowerCase().includes(state.search.toLowerCase());

// The steps that what is chosen leaves: of a layer, of a codelet, of a variable that moves in them, on a tile.
function stepIsLeft(step) {
  if (state.layer !== undefined && cell("steps", "layer", step) !== state.layer) return false;
  if (state.codelet !== undefined && !codeletSteps().has(cell("steps", "name", step))) return false;
  if (state.variable !== undefined && !variableSteps().has(step)) return false;
  if (state.tile !== undefined && !tileSteps().has(step)) return false;
  return found(cell("steps", "name", step));
}

const kept = new Map();
function once(key, make) {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key);
}

function codeletSteps() {
  return once("codelet" + state.codelet, () => {
    const name = cell("codelets", "name", state.codelet);
    const own = new Set();
    for (let row = 0; row < tables.vertices.length; row++)
      if (cell("vertices", "codelet", row) === name) own.add(cell("vertices", "compute_set", row));
    return own;
  });
}
function variableSteps() {
  return once("variable" + state.variable, () => {
    const own = new Set();
    const [steps, variables] = [numbers("moves", "step"), numbers("moves", "variable")];
    for (let row = 0; row < steps.length; row++) if (variables[row] === state.variable) own.add(steps[row]);
    return own;
  });
}
function tileSteps() {
  return once("tile" + state.tile, () => {
    const steps = numbers("step_tiles", "step");
    return new Set(Array.from(rowsBy("step_tiles", "tile", about.num_tiles)(state.tile), (row) => steps[row]));
  });
}
