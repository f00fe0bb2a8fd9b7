// Correlations of the columns of each view with a component, as images or bars.

const loadings = DATA.loadings.filter((part) => part.kind !== "missing").map((part) => ({
  ...part, table: part.kind === "image" ? unpack(part.values) : null,
}));

const valuesOf = (part, component) =>
  part.kind === "image" ? part.table.column(component) : part.values[component];

// One scale for both views, so that they can be compared.
const largest = (component) => loadings.flatMap((part) => valuesOf(part, component))
  .reduce((most, value) => Math.max(most, Math.abs(value)), 0.01);

const heading = (text) => ({ text, x: 0, xanchor: "left", font: { size: 13 } });

function loadingImage(part, component, colour) {
  const values = valuesOf(part, component);
  const z = Array.from({ length: part.height }, (_, i) =>
    values.slice(i * part.width, (i + 1) * part.width));
  const scale = largest(component);
  return {
    traces: [{
      z, type: "heatmap", zmin: -scale, zmax: scale,
      colorscale: [[0, colour.low], [0.5, colour.middle], [1, colour.high]],
      hovertemplate: "row %{y}, column %{x}: %{z:.3f}<extra></extra>",
      colorbar: { thickness: 12, outlinewidth: 0, tickformat: ".2f" },
    }],
    layout: {
      title: heading(`pixels of ${part.view}`),
      margin: { l: 8, r: 8, t: 36, b: 8 },
      xaxis: { visible: false, constrain: "domain" },
      yaxis: { visible: false, autorange: "reversed", scaleanchor: "x", constrain: "domain" },
    },
  };
}

function loadingBars(part, component, colour, width) {
  const [names, values] = [part.names[component], valuesOf(part, component)];
  const length = Math.max(12, Math.floor(width / 20));
  const short = (name) => (name.length > length ? `${name.slice(0, length - 1)}…` : name);
  const scale = largest(component) * 1.05;
  return {
    traces: [{
      // Names may repeat; positions do not.
      x: values, y: names.map((_, k) => k), type: "bar", orientation: "h",
      marker: { color: values.map((value) => (value < 0 ? colour.low : colour.high)) },
      text: names.map(plain), textposition: "none",
      hovertemplate: "%{text}: %{x:.3f}<extra></extra>",
    }],
    layout: {
      title: heading(`columns of ${part.view}`),
      margin: { l: 8, r: 12, t: 36, b: 40 }, bargap: 0.35,
      xaxis: { title: { text: "correlation" }, range: [-scale, scale], nticks: 5, tickangle: 0 },
      yaxis: {
        tickvals: names.map((_, k) => k), ticktext: names.map((name) => plain(short(name))),
        autorange: "reversed", showgrid: false, zeroline: false,
      },
    },
  };
}

for (const part of loadings) {
  const id = `loadings-${part.view}`;
  const figure = part.kind === "image" ? loadingImage : loadingBars;
  const draw = plot(id, (colour) =>
    figure(part, Number(element("component").value), colour, element(id).clientWidth));
  element("component").addEventListener("change", draw);
}
