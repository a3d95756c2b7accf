// Elements of the page; words reach them as text alone.

function find(selector) {
  return document.querySelector(selector);
}

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function swatch(colour) {
  const element = make("span", { className: "swatch" });
  element.style.background = colour;
  return element;
}

// A list of words and what they stand for; pairs without a value are left out.
function facts(pairs) {
  const list = make("dl");
  for (const [word, value] of pairs) {
    if (value !== null && value !== "") list.append(make("dt", { textContent: word }), make("dd", { textContent: value }));
  }
  return list;
}

function say(selector, words) {
  const note = find(selector);
  note.textContent = words;
  note.hidden = !words;
}

// A canvas at the resolution of the screen; answers its context and its size in points.
function prepare(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const density = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * density), Math.round(height * density)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
  return { context, width, height };
}

// Shows words beside the pointer, inside the window.
function tip(event, ...children) {
  const element = find("#tip");
  element.replaceChildren(...children);
  element.hidden = false;
  const { width, height } = element.getBoundingClientRect();
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - height - 8);
  Object.assign(element.style, { left: `${Math.max(8, left)}px`, top: `${Math.max(8, top)}px` });
}

function hideTip() {
  find("#tip").hidden = true;
}

function line(words, quiet = true) {
  return make("div", { textContent: words, className: quiet ? "quiet" : "" });
}
