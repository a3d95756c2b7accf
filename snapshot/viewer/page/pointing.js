// What happens when a reader points, drags, turns the wheel or clicks in a picture.

function tipOver(event, place) {
  const { device, owners } = view, { layers } = timeline;
  const lines = [];
  if (place.layer !== null) {
    const values = new Float64Array(layers.count);
    layers.read(place.state, values);
    const owner = place.number === null ? null : owners.list[owners.of[place.number]];
    lines.push(make("div", {}, swatch(layers.colour(place.layer)), `${owner?.name ?? layers.name(place.layer)}`));
    if (owner?.where) lines.push(line(owner.where));
    if (place.number !== null) lines.push(line(`block of ${bytesText(device.allocations.bytes[place.number])}`));
    lines.push(line(`${place.layer < layers.rest ? "owner" : layers.name(place.layer).toLowerCase()}: ${bytesText(values[place.layer])}`));
  }
  lines.push(line(`${timeText(device.timeOf(place.state), 10)}: ${bytesText(device.allocated[place.state])} of ${bytesText(device.reserved[place.state])}`));
  for (const finding of device.findings) {
    if (Math.abs(timeline.findingX(view, finding) - place.x) < 5) lines.push(make("div", { className: "alarm", textContent: finding.words }));
  }
  tip(event, ...lines);
}

function tipOverBlock(event, { segment, block }) {
  const { device, owners, fragments } = view, { blocks, segments } = device;
  if (block === null) {
    const free = fragments.free[segment];
    return tip(event, line(`Segment of ${bytesText(segments.bytes[segment])}`, false), line(strips.words(device, segment)), line(`${device.streamText(segments.stream[segment])}, ${device.poolText(segments.pool[segment])}`),
      line(`${plural(segments.blocks[segment], "block")}, ${bytesText(free)} free, fragmentation ${shareText(Fragments.broken(free, fragments.largest[segment]), 1)}`));
  }
  const number = blocks.allocation[block] - 1, owner = number < 0 ? null : owners.list[owners.of[number]];
  const state = ["free", "allocated", "given back, still used by other streams"][blocks.state[block]];
  tip(event, make("div", {}, swatch(strips.colour(view, block)), owner ? owner.name : `${bytesText(blocks.bytes[block])} free`), ...(owner?.where ? [line(owner.where)] : []),
    line(`${bytesText(blocks.bytes[block])}, ${state}`), line(addressText(segments.address[segment] + BigInt(blocks.offset[block]))));
}

// Wheels and drags over the picture: a drag selects a range, a short one is a click.
function listenToTimeline() {
  const { canvas } = timeline;
  let start = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.axis.move(event.deltaX / timeline.wide);
    else view.axis.zoom(Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.002))), timeline.valueAt(view.axis, event.offsetX));
    redraw();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    start = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const edge = Math.max(LEFT, Math.min(LEFT + timeline.wide, event.offsetX));
    view.selected = start !== null && Math.abs(edge - start) > 4 ? [Math.min(start, edge), Math.max(start, edge)] : null;
    view.hover = view.selected ? null : placeAt(timeline, view, event.offsetX, event.offsetY);
    if (view.hover) tipOver(event, view.hover);
    else hideTip();
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const range = view.selected;
    [start, view.selected] = [null, null];
    if (range) {
      view.axis.show(timeline.valueAt(view.axis, range[0]), timeline.valueAt(view.axis, range[1]));
      return redraw();
    }
    const place = placeAt(timeline, view, event.offsetX, event.offsetY);
    if (place) pin({ state: place.state, number: place.number, block: place.number === null ? null : blockOf(place.number), x: null });
  });
  canvas.addEventListener("dblclick", () => zoom(null));
}

// The block in which an allocation lies at the end, or null.
function blockOf(number) {
  const block = view.device.blocks.allocation.indexOf(number + 1);
  return block < 0 ? null : block;
}

function listenToOverview() {
  const { overview } = timeline;
  overview.addEventListener("pointerdown", (event) => overview.setPointerCapture(event.pointerId));
  for (const name of ["pointerdown", "pointermove"]) {
    overview.addEventListener(name, (event) => {
      if (!event.buttons) return;
      const { axis } = view, half = (axis.to - axis.from) / 2;
      const middle = ((event.offsetX - LEFT) / timeline.wide) * axis.length;
      axis.show(middle - half, middle + half);
      redraw();
    });
  }
}

function listenToStrips() {
  const at = (event) => strips.blockAt(view, event.offsetX, event.offsetY);
  strips.canvas.addEventListener("pointermove", (event) => {
    const place = at(event);
    view.hover = place && place.block !== null ? { state: null, number: blockNumber(place.block), block: place.block } : null;
    if (place) tipOverBlock(event, place);
    else hideTip();
    redraw();
  });
  strips.canvas.addEventListener("click", (event) => {
    const place = at(event);
    if (place && place.block !== null) pin({ state: null, number: blockNumber(place.block), block: place.block });
  });
  strips.scroller.addEventListener("scroll", redraw);
}

function blockNumber(block) {
  const number = view.device.blocks.allocation[block] - 1;
  return number < 0 ? null : number;
}
