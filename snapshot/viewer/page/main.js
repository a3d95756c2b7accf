// What is looked at, and what keys and choices change of it.

const view = { device: null, mode: "innermost", kind: "time", sort: "address", text: "", found: null, owner: null, lit: null, pin: null, hover: null, selected: null };
const timeline = new Timeline(find("#timeline"), find("#overview"));
const strips = new Strips(find("#strips"), find("#strip-canvas"), find("#tall"));
let isWaiting = false;

function redraw() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    draw();
  });
}

function draw() {
  if (view.device.events) timeline.draw(view);
  if (view.device.segments.bytes.length) strips.draw(view);
  showHolders(view);
}

function chooseDevice(index) {
  const { device } = (view.device = devices[index]) && view;
  Object.assign(view, { pin: null, hover: null, owner: null, spans: spansOf(device), fragments: new Fragments(device), axis: new Axis(device, view.kind) });
  showFigures(view);
  strips.sort(view);
  regroup();
}

function regroup() {
  view.owners = new Owners(view.device, view.mode);
  view.owner = null;
  relight();
}

// Decides which allocations stand out.
function relight() {
  const { device, owners, owner } = view, { stack } = device.allocations;
  view.found = search(view.head, view.text);
  const found = view.found;
  view.lit = found || owner !== null ? (number) => (!found || found[stack[number]] === 1) && (owner === null || owners.of[number] === owner) : null;
  view.layers = new Layers(device, owners, view.lit);
  view.hover = null;
  hideTip();
  showHits();
  showDetails(view);
  redraw();
}

function showHits() {
  const { device, owners, found, owner } = view;
  const filter = find("#filter");
  filter.hidden = owner === null;
  filter.firstChild.textContent = owner === null ? "" : owners.list[owner].name;
  const hits = find("#hits");
  hits.textContent = "";
  if (!found) return;
  const seen = new Set();
  let count = 0;
  for (let number = 0; number < owners.of.length; number++) {
    if (!found[device.allocations.stack[number]]) continue;
    count++;
    seen.add(owners.of[number]);
  }
  Object.assign(hits.dataset, { allocations: count, owners: seen.size });
  hits.textContent = count ? `${plural(count, "allocation")} of ${plural(seen.size, "owner")}` : "no stack has this";
}

function pin(place) {
  view.pin = place;
  showDetails(view);
  redraw();
}

function letGo() {
  if (view.pin) return pin(null);
  if (view.owner !== null) view.owner = null;
  else find("#search").value = view.text = "";
  relight();
}

// Pins the moment at which the most was allocated.
function goPeak() {
  if (view.device.last) goTo({ state: view.device.peak, number: null, block: null });
}

// Goes to the next moment at which memory ran out.
function nextOut() {
  const { outs } = view.device;
  if (!outs.length) return;
  const out = view.pin?.out === undefined ? 0 : (view.pin.out + 1) % outs.length;
  goTo({ out, state: outs[out] + 1, number: null, block: null });
}

// Goes to the next finding of the sanitizer.
function nextFinding() {
  const { findings } = view.device;
  if (!findings.length) return;
  const finding = view.pin?.finding === undefined ? 0 : (view.pin.finding + 1) % findings.length;
  const [number = null] = view.device.allocationsAt(findings[finding]);
  goTo({ finding, state: findings[finding].state, number, block: number === null ? null : blockOf(number) });
}

// Pins a moment, with a tenth of the history around it.
function goTo(place) {
  const { axis } = view;
  const value = axis.valueOf(place.state), width = Math.min(axis.to - axis.from, axis.length / 5);
  axis.show(value - width * 0.6, value + width * 0.4);
  pin(place);
}

function zoom(factor) {
  if (factor === null) view.axis.all();
  else view.axis.zoom(factor, view.hover?.state ? view.axis.valueOf(view.hover.state) : undefined);
  redraw();
}

const KEYS = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => zoom(null), o: nextOut, p: goPeak, s: nextFinding, Escape: letGo,
  ArrowLeft: () => { view.axis.move(-0.15); redraw(); },
  ArrowRight: () => { view.axis.move(0.15); redraw(); },
  "/": () => find("#search").focus(),
  t: () => find("#theme").click(),
};

function listen() {
  listenToTimeline();
  listenToOverview();
  listenToStrips();
  for (const canvas of [timeline.canvas, strips.canvas]) {
    canvas.addEventListener("pointerleave", () => {
      view.hover = null;
      hideTip();
      redraw();
    });
  }
  const on = (selector, name, act) => find(selector).addEventListener(name, act);
  on("#device", "change", (event) => chooseDevice(event.target.selectedIndex));
  on("#mode", "change", (event) => { view.mode = event.target.value; regroup(); });
  on("#axis", "change", (event) => { view.kind = event.target.value; view.axis = new Axis(view.device, view.kind); redraw(); });
  on("#sort", "change", (event) => { view.sort = event.target.value; strips.sort(view); redraw(); });
  on("#search", "input", (event) => { view.text = event.target.value; relight(); });
  on("#theme", "click", () => { chooseTheme(!colours.dark); redraw(); });
  on("#in", "click", () => zoom(0.6));
  on("#out", "click", () => zoom(1 / 0.6));
  on("#all", "click", () => zoom(null));
  on("#unpin", "click", () => pin(null));
  on("#filter button", "click", () => { view.owner = null; relight(); });
  on("#figures", "click", (event) => { ({ "go-peak": goPeak, "next-out": nextOut, "next-finding": nextFinding })[event.target.id]?.(); });
  on("#holders", "click", chooseOwner);
  on("#holders", "keydown", (event) => { if (event.key === "Enter") chooseOwner(event); });
  addEventListener("resize", redraw);
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, select");
    if (isTyping && event.key === "Escape") event.target.blur();
    if ((isTyping && event.key !== "Escape") || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    hideTip();
    KEYS[event.key]();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => { chooseTheme(event.matches); redraw(); });
}

function chooseOwner(event) {
  const row = event.target.closest("tr.owner");
  if (!row) return;
  const owner = Number(row.dataset.owner);
  view.owner = view.owner === owner ? null : owner;
  relight();
}

// The first way of grouping that tells anything apart.
function usefulMode(device) {
  const tells = (mode) => new Set(device.allocations[mode]).size > 1;
  return view.head.stackCount > 1 ? "innermost" : ["metadata", "pool", "stream"].find(tells) ?? "stream";
}

let devices = [];

async function open() {
  const data = find("#data");
  view.head = await decode(data.textContent);
  data.remove();
  readStacks(view.head);
  devices = view.head.devices.map((device) => new Device(device, view.head));
  const options = (pairs) => pairs.map(([value, textContent]) => make("option", { value, textContent }));
  find("#device").append(...options(devices.map(({ number }) => [number, `${number}`])));
  find("#mode").append(...options(Object.entries(MODES)));
  find("#sort").append(...options(Object.entries(SORTS)));
  find("#mode").value = view.mode = usefulMode(devices[0]);
  showSettings(view.head);
  const wish = location.hash.slice(1);
  chooseTheme(wish ? wish === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  listen();
  chooseDevice(0);
  draw();
  find("#opened").textContent = `opened in ${Math.round(performance.now())} ms`;
  document.documentElement.dataset.opened = performance.now();
}

open().catch((error) => say("#history-note", `This page cannot be shown: ${error.message}. A current browser is needed.`));
