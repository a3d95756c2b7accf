// From a place in the picture to the allocation there, and back.
//
// In a layer the allocations lie by number, the oldest at the bottom. So what lies below one only ever shrinks.

// The allocation that lies so many bytes up in a layer, or null.
function allocationAt(device, layers, state, layer, bytes) {
  const { allocations } = device;
  for (let number = 0; number < layers.of.length && allocations.begin[number] <= state; number++) {
    if (layers.of[number] !== layer || state >= allocations.end[number]) continue;
    bytes -= allocations.bytes[number];
    if (bytes < 0) return number;
  }
  return null;
}

// What is under a point: the state, and the layer and the allocation if it is on one.
function placeAt(timeline, { device }, x, y) {
  // The layers that were drawn last: others may have been chosen since.
  const { layers } = timeline;
  const column = Math.floor(x - LEFT);
  if (column < 0 || column >= timeline.wide) return null;
  const state = timeline.picks[column], stride = layers.count + 1;
  const bytes = ((timeline.bottom - y) / (timeline.bottom - timeline.top)) * timeline.most;
  const place = { state, x, layer: null, number: null };
  for (let layer = 0; layer < layers.count && bytes >= 0; layer++) {
    const low = timeline.edges[column * stride + layer], high = timeline.edges[column * stride + layer + 1];
    if (bytes < low || bytes >= high) continue;
    place.layer = layer;
    place.number = allocationAt(device, layers, state, layer, bytes - low);
    break;
  }
  return place;
}

// For each column in which an allocation is held: the column, and from where to where the allocation lies.
function bandOf(timeline, device, layers, number) {
  const { begin, end, bytes } = device.allocations, { op, subject } = device.steps;
  const layer = layers.of[number], stride = layers.count + 1, list = [];
  let below = 0;
  for (let other = 0; other < number; other++) if (layers.of[other] === layer && device.isHeld(other, begin[number])) below += bytes[other];
  let state = begin[number];
  for (let column = 0; column < timeline.wide; column++) {
    const pick = timeline.picks[column];
    if (pick < begin[number]) continue;
    if (pick >= end[number]) break;
    for (; state < pick; state++) {
      const which = subject[state];
      if (op[state] === END && which < number && layers.of[which] === layer) below -= bytes[which];
    }
    const low = timeline.edges[column * stride + layer] + below;
    list.push([column, low, low + bytes[number]]);
  }
  return list;
}

// What the program said it was doing, from begin to end, with how deep each lies in others.
function spansOf(device) {
  const open = [], list = [];
  let depth = 0;
  for (const [name, begins, time] of device.annotations) {
    if (name.startsWith(SANITIZER)) continue;
    if (begins) {
      list.push({ name, from: time, to: device.span, depth: open.length });
      open.push(list.at(-1));
      depth = Math.max(depth, open.length);
    } else {
      const index = open.findLastIndex((span) => span.name === name);
      if (index >= 0) open.splice(index).forEach((span) => { span.to = time; });
    }
  }
  return { list, depth: device.last ? depth : 0 };
}
