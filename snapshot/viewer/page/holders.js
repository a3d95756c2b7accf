// The table of who holds the most in a state.

const ROWS = 60;

// What each owner holds in a state, the most first; of allocations that the text finds alone.
function holdersOf({ device, owners, found }, state) {
  const { allocations } = device;
  const bytes = new Float64Array(owners.list.length), blocks = new Uint32Array(owners.list.length);
  for (let number = 0; number < owners.of.length && allocations.begin[number] <= state; number++) {
    if (state >= allocations.end[number] || (found && !found[allocations.stack[number]])) continue;
    bytes[owners.of[number]] += allocations.bytes[number];
    blocks[owners.of[number]]++;
  }
  const list = owners.list.filter((owner) => blocks[owner.place]);
  return list.map((owner) => ({ owner, bytes: bytes[owner.place], blocks: blocks[owner.place] })).sort((a, b) => b.bytes - a.bytes);
}

function showHolders(view) {
  const { device } = view;
  const state = view.hover?.state ?? view.pin?.state ?? device.peak;
  const list = holdersOf(view, state), whole = device.allocated[state];
  find("#moment").textContent = state === device.last ? "at the end" : state === device.peak ? "at the peak" : `at ${view.axis.kind === "events" ? `event ${countText(state)}` : timeText(device.timeOf(state), 1000)}`;
  const rows = list.slice(0, ROWS).map((row) => holderRow(view, row, list[0].bytes, whole));
  find("#holders tbody").replaceChildren(...rows);
  const more = list.length - rows.length;
  say("#holders-note", !list.length ? (view.found ? "Nothing that matches is held here." : "Nothing is held here.") : more > 0 ? `and ${plural(more, "more owner")}` : "");
}

function holderRow(view, { owner, bytes, blocks }, most, whole) {
  const colour = ownerColour(owner.rank, view.lit !== null);
  const bar = make("span", { className: "bar" });
  Object.assign(bar.style, { width: `${(100 * bytes) / (most || 1)}%`, background: colour });
  const name = make("span", { className: "name", title: `${owner.name} ${owner.where}` }, swatch(colour), owner.name);
  const row = make("tr", { className: `owner${view.owner === owner.place ? " chosen" : ""}`, tabIndex: 0 },
    make("td", {}, name, make("span", { className: "place", textContent: owner.where }), bar),
    make("td", { title: `${countText(bytes)} bytes` }, bytesText(bytes), make("span", { className: "place", textContent: shareText(bytes, whole) })),
    make("td", { textContent: countText(blocks) }));
  row.dataset.owner = owner.place;
  return row;
}
