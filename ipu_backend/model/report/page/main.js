// The page: tabs, the choices above, the search, and the views, each made when it is first opened.

const TITLES = { comparison: "Comparison", summary: "Summary", memory: "Memory", liveness: "Liveness", execution: "Execution", exchange: "Exchange", graph: "Graph" };
const MAKERS = { comparison: comparisonView, summary: summaryView, memory: memoryView, liveness: livenessView, execution: executionView, exchange: exchangeView, graph: graphView };
const made = {};

function failed(error) {
  const place = document.getElementById("failed");
  place.hidden = false;
  place.textContent = "This report cannot be shown: " + error;
  console.error(error);
}

async function openView(name) {
  if (!made[name]) {
    made[name] = (async () => {
      const view = MAKERS[name]();
      for (const id of view.plots || []) await embedPlot(id);
      if (view.begin) view.begin();
      return view;
    })();
  }
  return made[name];
}

async function show() {
  for (const name of VIEWS) {
    const tab = document.getElementById("tab-" + name);
    tab.setAttribute("aria-selected", String(name === state.view));
    tab.tabIndex = name === state.view ? 0 : -1;
    document.getElementById("view-" + name).hidden = name !== state.view;
  }
  showChosen();
  const opened = state.view;
  const view = await openView(opened);
  if (opened !== state.view) return;
  if (view.update) view.update();
  for (const table of view.tables || []) table.update();
  document.documentElement.dataset.shown = opened;
}

function showChosen() {
  const chips = CHOICES.filter((name) => state[name] !== undefined).map((name) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = chosenText(name) + " ×";
    button.title = "Give up this choice";
    button.addEventListener("click", () => choose({ [name]: undefined }));
    return button;
  });
  const layers = document.createElement("select");
  layers.setAttribute("aria-label", "Layer");
  layers.append(new Option("all layers", ""), ...Array.from(layerCycles().keys(), (name) => new Option(name, name)));
  layers.value = state.layer === undefined ? "" : state.layer;
  layers.addEventListener("change", () => choose({ layer: layers.value || undefined }));
  document.getElementById("chosen").replaceChildren(...(layerCycles().size ? [layers] : []), ...chips);
}

function setStyle(style) {
  document.documentElement.dataset.style = style;
  const button = document.getElementById("style");
  button.textContent = style === "dark" ? "Light" : "Dark";
  for (const id of Object.keys(documents)) paint(id);
}

function prepare() {
  document.querySelector("h1").textContent = content.title;
  const records = document.getElementById("record");
  records.hidden = content.records.length < 2;
  content.records.forEach((own, k) => records.firstElementChild.append(new Option(own.about.title, k)));
  records.firstElementChild.value = chosenRecord;
  records.firstElementChild.addEventListener("change", (event) => {
    location.hash = new URLSearchParams({ view: state.view, record: event.target.value });
    location.reload();
  });
  document.getElementById("target").textContent =
    `${about.target}: ${whole(about.num_tiles)} tiles of ${whole(about.bytes_per_tile)} bytes, ${about.num_workers} workers each, ${about.clock_hertz / 1e9} GHz`;
  const tabs = document.querySelector("nav");
  for (const name of VIEWS) {
    const tab = document.createElement("button");
    Object.assign(tab, { type: "button", id: "tab-" + name, textContent: TITLES[name] });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "view-" + name);
    tab.addEventListener("click", () => choose({ view: name }));
    tabs.append(tab);
  }
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const name = VIEWS[(VIEWS.indexOf(state.view) + step + VIEWS.length) % VIEWS.length];
    choose({ view: name });
    document.getElementById("tab-" + name).focus();
  });
  const search = document.getElementById("search");
  search.value = state.search;
  search.addEventListener("input", () => choose({ search: search.value }));
  listeners.push(() => {
    if (search.value !== state.search) search.value = state.search;
  });
  document.getElementById("style").addEventListener("click", () => {
    setStyle(isDark() ? "light" : "dark");
    show().catch(failed);
  });
  const copy = document.getElementById("copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Copy it from the address bar";
    }
    setTimeout(() => (copy.textContent = "Copy link"), 1500);
  });
  addEventListener("hashchange", () => {
    readAddress();
    search.value = state.search;
    show().catch(failed);
  });
}

(async () => {
  Bokeh.logger.set_level("error"); // it warns of every plot that has no data yet
  await unpack();
  readAddress();
  prepare();
  setStyle(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  listeners.push(() => show().catch(failed));
  await show();
})().catch(failed);
