// Rows in the plane of two variates, coloured by label, with their images on hover.

const PALETTE = ["#4a87c4", "#f28e2b", "#4aa653", "#e2504f", "#b277ad", "#4fb3ac", "#d4a90f",
  "#f7839c", "#a57a5a", "#8a8f98"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down",
  "hexagon", "x", "circle-open"];
const variates = DATA.variates.map(unpack);

function axis(id) {
  const [view, component] = element(id).value.split(":").map(Number);
  return {
    values: variates[view].column(component),
    title: `${VIEWS[view]}, component ${component + 1}`,
  };
}

function correlation(a, b) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [ma, mb] = [mean(a), mean(b)];
  let [ab, aa, bb] = [0, 0, 0];
  a.forEach((value, i) => {
    ab += (value - ma) * (b[i] - mb);
    aa += (value - ma) ** 2;
    bb += (b[i] - mb) ** 2;
  });
  return aa > 0 && bb > 0 ? ab / Math.sqrt(aa * bb) : 0;
}

// Rows by colour and marker.
function groups(colour) {
  const all = DATA.rows.map((_, i) => i);
  if (labelCodes) {
    return labels.groups.map((name, g) => ({
      name: plain(name),
      rows: all.filter((i) => labels.group_of[labelCodes[i]] === g),
      marker: { color: PALETTE[g], symbol: SYMBOLS[g] },
    }));
  }
  if (labelNumbers) {
    const marker = {
      color: labelNumbers, colorscale: "Viridis",
      colorbar: { title: { text: "label" }, thickness: 12, outlinewidth: 0 },
    };
    return [{ name: "rows", rows: all, marker }];
  }
  return [{ name: "rows", rows: all, marker: { color: colour.s1 } }];
}

// Around the chosen row; a shape, since moving it does not redraw all points.
function ring(colour) {
  const [x, y] = ["scatter-x", "scatter-y"].map((id) => axis(id).values[query.index]);
  return [{
    type: "circle", xsizemode: "pixel", ysizemode: "pixel", xanchor: x, yanchor: y,
    x0: -8, x1: 8, y0: -8, y1: 8, line: { color: colour.ink, width: 2.5 },
  }];
}

const drawScatter = plot("scatter", (colour) => {
  const [x, y] = [axis("scatter-x"), axis("scatter-y")];
  const traces = groups(colour).map(({ name, rows, marker }) => ({
    type: "scatter", mode: "markers", name, customdata: rows, hoverinfo: "none",
    x: rows.map((i) => x.values[i]), y: rows.map((i) => y.values[i]),
    marker: { size: 6.5, opacity: 0.85, ...marker },
  }));
  element("scatter-caption").textContent =
    "The ring marks the row chosen below. Correlation of the two axes over these rows: " +
    correlation(x.values, y.values).toFixed(3).replace("-", "−");
  return {
    traces,
    layout: {
      hovermode: "closest", showlegend: traces.length > 1, shapes: ring(colour), legend: {
        orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemwidth: 30, itemsizing: "constant",
      },
      uirevision: `${element("scatter-x").value} ${element("scatter-y").value}`,
      xaxis: { title: { text: x.title } }, yaxis: { title: { text: y.title } },
    },
  };
});

for (const id of ["scatter-x", "scatter-y"]) element(id).addEventListener("change", drawScatter);
query.listeners.push(() => Plotly.relayout("scatter", { shapes: ring(colours()) }));

const tip = textElement("div", "", "tip");
tip.hidden = true;
document.body.append(tip);

element("scatter").on("plotly_hover", ({ points, event }) => {
  const index = points[0].customdata;
  const images = [0, 1].map((view) => rowImage(view, index, 72)).filter(Boolean);
  const row = document.createElement("div");
  row.append(...images);
  tip.replaceChildren(row, ...captions(index, [0, 1]));
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${event.clientY + 14 + scrollY}px`;
});
element("scatter").on("plotly_unhover", () => { tip.hidden = true; });
element("scatter").on("plotly_click", ({ points }) => choose(points[0].customdata));
