// Columns of each view as images or bars: their correlations with a component, their importance.

function columnPlots(data, prefix, selector, axis, least) {
  const views = data.filter((part) => part.kind !== "missing").map((part) => ({
    ...part, table: part.kind === "image" ? unpack(part.values) : null,
  }));

  const valuesOf = (part, k) => (part.kind === "image" ? part.table.column(k) : part.values[k]);

  // One scale for both views, so that they can be compared.
  const largest = (k) => views.flatMap((part) => Array.from(valuesOf(part, k)))
    .reduce((most, value) => Math.max(most, Math.abs(value)), least);

  const heading = (text) => ({ text, x: 0, xanchor: "left", font: { size: 13 } });

  function drawImage(part, k, colour) {
    const values = valuesOf(part, k);
    const z = Array.from({ length: part.height }, (_, i) =>
      values.slice(i * part.width, (i + 1) * part.width));
    const scale = largest(k);
    return {
      traces: [{
        z, type: "heatmap", zmin: -scale, zmax: scale,
        colorscale: [[0, colour.low], [0.5, colour.middle], [1, colour.high]],
        hovertemplate: "row %{y}, column %{x}: %{z:.3f}<extra></extra>",
        colorbar: { thickness: 12, outlinewidth: 0, tickformat: ".2~g" },
      }],
      layout: {
        title: heading(`pixels of ${part.view}`),
        margin: { l: 8, r: 8, t: 36, b: 8 },
        xaxis: { visible: false, constrain: "domain" },
        yaxis: { visible: false, autorange: "reversed", scaleanchor: "x", constrain: "domain" },
      },
    };
  }

  function drawBars(part, k, colour, width) {
    const [names, values] = [part.names[k], valuesOf(part, k)];
    const length = Math.max(12, Math.floor(width / 20));
    const short = (name) => (name.length > length ? `${name.slice(0, length - 1)}…` : name);
    const scale = largest(k) * 1.05;
    return {
      traces: [{
        // Names may repeat; positions do not.
        x: values, y: names.map((_, i) => i), type: "bar", orientation: "h",
        marker: { color: values.map((value) => (value < 0 ? colour.low : colour.high)) },
        text: names.map(plain), textposition: "none",
        hovertemplate: "%{text}: %{x:.3f}<extra></extra>",
      }],
      layout: {
        title: heading(`columns of ${part.view}`),
        margin: { l: 8, r: 12, t: 36, b: 40 }, bargap: 0.35,
        xaxis: {
          title: { text: axis }, nticks: 5, tickangle: 0,
          range: values.some((value) => value < 0) || axis === "correlation"
            ? [-scale, scale] : [0, scale],
        },
        yaxis: {
          tickvals: names.map((_, i) => i), ticktext: names.map((name) => plain(short(name))),
          autorange: "reversed", showgrid: false, zeroline: false,
        },
      },
    };
  }

  for (const part of views) {
    const id = `${prefix}-${part.view}`;
    const figure = part.kind === "image" ? drawImage : drawBars;
    const draw = plot(id, (colour) =>
      figure(part, Number(element(selector).value), colour, element(id).clientWidth));
    element(selector).addEventListener("change", draw);
  }
}

columnPlots(DATA.metric, "metric", "direction", "importance or weight", 1e-6);
columnPlots(DATA.loadings, "loadings", "component", "correlation", 0.01);
