// The frame of a page: its data, its colours, and plots that follow them.

const element = (id) => document.getElementById(id);
const DATA = JSON.parse(element("data").textContent);

// Decodes `pack_table` of page.py: a table of numbers, row by row.
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

// Plotly interprets tags in its texts; ours are plain text.
const plain = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "sheet", "line", "s0", "s1", "s2", "s3", "low", "middle", "high"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Lines differ by dash and marker too, not by colour alone.
const LINES = [
  { dash: "dash", symbol: "square" }, { dash: "solid", symbol: "circle" },
  { dash: "dot", symbol: "diamond" }, { dash: "dashdot", symbol: "triangle-up" },
];

// What all lines of charts share: the k-th line of a chart through `values` at `x`.
function line(colour, k, name, x, values) {
  const { dash, symbol } = LINES[k % LINES.length];
  const color = colour[`s${k % LINES.length}`];
  return {
    type: "scatter", mode: "lines+markers", name: plain(name), x, y: values,
    line: { color, dash }, marker: { color, symbol, size: 7 },
  };
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

// Functions that draw each plot again, by element id.
const plots = new Map();

// `figure(colour)` returns {traces, layout}. Returns a function that draws the plot again.
function plot(id, figure) {
  const draw = () => {
    const colour = colours();
    const { traces, layout: changes } = figure(colour);
    // On a screen a plot resizes later, by itself; printing does not wait.
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

function setPrinting(begins) {
  document.documentElement.classList.toggle("printing", begins);
  redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
matchMedia("print").addEventListener("change", (print) => setPrinting(print.matches));
addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));

// Radio buttons by name.
const checked = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

function onChecked(name, listener) {
  for (const button of document.querySelectorAll(`input[name="${name}"]`))
    button.addEventListener("change", listener);
}
