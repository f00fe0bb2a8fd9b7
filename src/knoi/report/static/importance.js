// What a component is made of: inputs by their correlation with it, as images or as bars.

const loadings = DATA.importance.map((part) => ({
  ...part, table: part?.kind === "image" ? unpack(part.values) : null,
}));

// One scale for both views, so that they can be compared.
function strongest(component) {
  const values = loadings.flatMap((part) => {
    if (part.kind === "image") return part.table.column(component);
    return part.kind === "columns" ? part.values[component] : [];
  });
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0.01);
}

const importanceId = (view) => `importance-${VIEWS[view].toLowerCase()}`;
const shortened = (name, room) => (name.length > room ? `${name.slice(0, room - 1)}…` : name);
const diverging = (colour) => [[0, colour.low], [0.5, colour.middle], [1, colour.high]];

function image(view, part, component, colour) {
  const values = part.table.column(component);
  const z = Array.from({ length: part.height }, (_, i) =>
    values.slice(i * part.width, (i + 1) * part.width));
  const most = strongest(component);
  return {
    traces: [{
      z, type: "heatmap", zmin: -most, zmax: most, colorscale: diverging(colour),
      hovertemplate: "row %{y}, column %{x}: %{z:.3f}<extra></extra>",
      colorbar: { thickness: 12, outlinewidth: 0, tickformat: ".2f" },
    }],
    layout: {
      title: { text: `pixels of ${VIEWS[view]}`, x: 0, xanchor: "left", font: { size: 13 } },
      margin: { l: 8, r: 8, t: 36, b: 8 },
      xaxis: { visible: false, constrain: "domain" },
      yaxis: { visible: false, autorange: "reversed", scaleanchor: "x", constrain: "domain" },
    },
  };
}

function bars(view, part, component, colour) {
  const [names, values] = [part.names[component], part.values[component]];
  const room = Math.max(12, Math.floor(element(importanceId(view)).clientWidth / 20));
  const most = strongest(component) * 1.05;
  return {
    traces: [{
      // Names may repeat; places do not.
      x: values, y: names.map((_, k) => k), type: "bar", orientation: "h",
      marker: { color: values.map((value) => (value < 0 ? colour.low : colour.high)) },
      text: names.map(plain), textposition: "none",
      hovertemplate: "%{text}: %{x:.3f}<extra></extra>",
    }],
    layout: {
      title: { text: `columns of ${VIEWS[view]}`, x: 0, xanchor: "left", font: { size: 13 } },
      margin: { l: 8, r: 12, t: 36, b: 40 }, bargap: 0.35,
      xaxis: { title: { text: "correlation" }, range: [-most, most], nticks: 5, tickangle: 0 },
      yaxis: {
        tickvals: names.map((_, k) => k),
        ticktext: names.map((name) => plain(shortened(name, room))),
        autorange: "reversed", showgrid: false, zeroline: false,
      },
    },
  };
}

loadings.forEach((part, view) => {
  const id = importanceId(view);
  if (!element(id)) return;
  const drawn = part.kind === "image" ? image : bars;
  const draw = plot(id, (colour) => drawn(view, part, Number(element("component").value), colour));
  element("component").addEventListener("change", draw);
});
