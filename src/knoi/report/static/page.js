// The frame of the page: its data, its colours, and plots that follow them.

const element = (id) => document.getElementById(id);
const DATA = JSON.parse(element("data").textContent);
const VIEWS = ["X", "Y"];

// The inverse of `packed` in packing.py: numbers of a table, row by row.
function unpack({ shape, units, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const steps = new Int16Array(bytes.buffer);
  const columns = shape[1];
  return {
    at: (row, column) => steps[row * columns + column] * units[column],
    row: (row) => Array.from({ length: columns }, (_, j) => steps[row * columns + j] * units[j]),
    column: (j) => Array.from({ length: shape[0] }, (_, i) => steps[i * columns + j] * units[j]),
  };
}

// Plotly reads tags in its texts; ours are text.
const plain = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "sheet", "line", "s0", "s1", "s2", "low", "middle", "high"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function layout(colour, changes) {
  const axis = {
    gridcolor: colour.line, zerolinecolor: colour.line, linecolor: colour.line,
    tickcolor: colour.line, automargin: true, title: { standoff: 10 },
  };
  return {
    autosize: true,
    margin: { l: 48, r: 12, t: 12, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: colour.ink },
    hoverlabel: { bgcolor: colour.sheet, bordercolor: colour.line, font: { color: colour.ink } },
    modebar: {
      orientation: "v", bgcolor: "rgba(0,0,0,0)", color: colour.soft, activecolor: colour.s1,
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemwidth: 30 },
    ...changes,
    xaxis: { ...axis, ...changes.xaxis, title: { ...axis.title, ...changes.xaxis?.title } },
    yaxis: { ...axis, ...changes.yaxis, title: { ...axis.title, ...changes.yaxis?.title } },
  };
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
};

// All plots there are, each with what draws it anew.
const plots = new Map();

// `figure(colour)` gives {traces, layout}; the function returned draws it again.
function plot(id, figure) {
  const draw = () => {
    const colour = colours();
    const { traces, layout: changes } = figure(colour);
    // On a screen a plot follows its frame in its own time; paper does not wait.
    const width = printing() ? element(id).clientWidth : undefined;
    Plotly.react(id, traces, { ...layout(colour, changes), width }, CONFIG);
  };
  plots.set(id, draw);
  draw();
  return draw;
}

function redraw() {
  for (const draw of plots.values()) draw();
}

// Paper is white and narrow, whatever the screen is.
const printing = () => document.documentElement.classList.contains("printing");

function onPaper(begins) {
  document.documentElement.classList.toggle("printing", begins);
  redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
matchMedia("print").addEventListener("change", (print) => onPaper(print.matches));
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));

// Rows that are shown: their numbers, labels and pictures.
const labels = DATA.labels;
const labelCodes = labels?.kind === "category" ? unpack(labels.codes).column(0) : null;
const labelNumbers = labels?.kind === "number" ? unpack(labels.values).column(0) : null;

function labelOf(index) {
  if (labelCodes) return labels.names[labelCodes[index]];
  return labelNumbers ? String(Number(labelNumbers[index].toPrecision(4))) : null;
}

// A picture of a row about `height` pixels high, or null where the view has none.
function picture(view, index, height) {
  const sprite = DATA.pictures[view];
  if (!sprite) return null;
  const scale = Math.max(height / sprite.height, 16 / sprite.width);
  const [w, h] = [Math.round(sprite.width * scale), Math.round(sprite.height * scale)];
  const shown = document.createElement("div");
  shown.className = `picture picture-${view}`;
  shown.setAttribute("role", "img");
  shown.setAttribute("aria-label", `row ${DATA.rows[index]} of ${VIEWS[view]}`);
  shown.style.width = `${w}px`;
  shown.style.height = `${h}px`;
  shown.style.backgroundSize = `${w * sprite.columns}px ${h * sprite.lines}px`;
  const [line, column] = [Math.floor(index / sprite.columns), index % sprite.columns];
  shown.style.backgroundPosition = `${-w * column}px ${-h * line}px`;
  return shown;
}

function textElement(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function chosen(name) {
  return document.querySelector(`input[name="${name}"]:checked`).value;
}

function onChoice(name, act) {
  for (const button of document.querySelectorAll(`input[name="${name}"]`))
    button.addEventListener("change", act);
}
