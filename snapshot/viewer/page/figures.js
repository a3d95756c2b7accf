// The figures at the head, and what the page says when something is not there.

function showFigures(view) {
  const { device, fragments } = view, { total } = fragments;
  const outs = device.outs.length;
  const tiles = [
    tile("peak-allocated", "Peak allocated", device.allocated[device.peak], device.last ? `at ${timeText(device.timeOf(device.peak), 1000)}` : ""),
    tile("peak-reserved", "Peak reserved", device.mostReserved, ""),
    tile("end-allocated", "Allocated at the end", device.allocated[device.last], total.reserved ? `${shareText(device.allocated[device.last], total.reserved)} of reserved` : ""),
    tile("end-reserved", "Reserved at the end", total.reserved, plural(device.segments.bytes.length, "segment")),
    tile("events", "Events", countText(device.events), device.last ? `in ${timeText(device.span, 1000)}` : ""),
    tile("outs", "Out of memory", outs ? plural(outs, "time") : "never", ""),
  ];
  if (device.last) tiles[0].querySelector("dd").append(make("button", { type: "button", id: "go-peak", textContent: "Show", title: "Pins the peak (p)" }));
  if (outs) alarm(tiles.at(-1), "next-out", "o");
  if (device.findings.length) {
    tiles.push(tile("findings", "Sanitizer", plural(device.findings.length, "finding"), ""));
    alarm(tiles.at(-1), "next-finding", "s");
  }
  find("#figures").replaceChildren(...tiles);
  find("#fragments").textContent = find("#fragments").title = fragments.words;
  find("#started").textContent = device.events ? `history from ${new Date(device.start_us / 1000).toISOString().replace("T", " ").slice(0, 19)} UTC` : "";
  showNotes(view);
}

function tile(name, title, value, remark) {
  const words = typeof value === "number" ? bytesText(value) : value;
  const figure = make("dd", {}, words, remark ? make("small", { textContent: remark }) : null);
  if (typeof value === "number") Object.assign(figure, { title: `${countText(value)} bytes` }).dataset.bytes = value;
  const element = make("div", {}, make("dt", { textContent: title }), figure);
  element.dataset.figure = name;
  return element;
}

// Adds a button that goes to the next moment of a figure.
function alarm(element, id, key) {
  element.className = "alarm";
  element.querySelector("dd").append(make("button", { type: "button", id, textContent: "Show", title: `The next one (${key})` }));
}

// Says kindly what was not recorded.
function showNotes({ device, head }) {
  const holds = device.segments.bytes.length > 0;
  let words = "";
  if (!device.events) words = "No history was recorded, so there is nothing to show over time. Record the history before the work begins to see it here.";
  else if (!head.stack_lengths.length) words = "No stacks were recorded. Memory is grouped by what is known; record stacks to see which code holds it.";
  say("#history-note", words);
  find("#timeline").hidden = find("#overview").hidden = !device.events;
  say("#segments-note", holds ? "" : "No segments were held when the snapshot was taken.");
  find("#strips").hidden = !holds;
}

function showSettings(head) {
  find("#settings").hidden = !head.settings.length;
  const rows = head.settings.map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
  find("#settings dl").replaceWith(facts(rows));
}
