// One scale of colours for owners, in both themes.

const TOP = 10;
// From blue over green to sand; neighbours differ in lightness too.
const HUES = [258, 232, 205, 180, 155, 128, 100, 78, 55, 30];

const colours = { dark: false, ramp: [] };

function chooseTheme(dark) {
  colours.dark = dark;
  document.documentElement.classList.toggle("dark", dark);
  find("#theme").textContent = dark ? "Light" : "Dark";
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "panel", "line", "ink", "quiet", "faint", "accent", "alarm", "free", "rest", "other", "pending", "reserved"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  const lightness = dark ? [0.64, 0.54] : [0.62, 0.74];
  colours.ramp = HUES.map((hue, index) => `oklch(${lightness[index % 2]} ${dark ? 0.09 : 0.1} ${hue})`);
}

// The colour of an owner by its rank; owners past the scale share one, unless one of them is singled out.
function ownerColour(rank, single = false) {
  return rank < TOP || single ? colours.ramp[rank % TOP] : colours.rest;
}
