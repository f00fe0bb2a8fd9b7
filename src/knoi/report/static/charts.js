// Plots that only show: correlations beside chance, the learning curve, recall.

plot("correlations", (colour) => {
  const { training, held_out, chance, beyond } = DATA.correlations;
  const components = training.map((_, k) => k + 1);
  // The band covers its components to half way to the next.
  const edges = components.flatMap((k) => [k - 0.5, k + 0.5]);
  const upper = chance.flatMap((rho) => [rho, rho]);
  const band = {
    x: [...edges, ...[...edges].reverse()],
    y: [...upper, ...upper.map((rho) => -rho).reverse()],
    type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
    line: { width: 0 }, fillcolor: colour.line, opacity: 0.8, name: "95% of chance",
  };
  const line = { x: components, type: "scatter", mode: "lines+markers" };
  const traces = [band, {
    ...line, y: training, name: "training", line: { color: colour.s0, dash: "dot" },
    marker: { symbol: "square", size: 6 },
    hovertemplate: "component %{x}<br>training %{y:.3f}<extra></extra>",
  }];
  if (held_out) {
    traces.push({
      ...line, y: held_out, name: "held out", line: { color: colour.s1 },
      marker: {
        size: 9, color: beyond.map((is) => (is ? colour.s1 : colour.sheet)),
        line: { color: colour.s1, width: 2 },
      },
      text: beyond.map((is) => (is ? "beyond chance" : "could be noise")),
      hovertemplate: "component %{x}<br>held out %{y:.3f}<br>%{text}<extra></extra>",
    });
  }
  const lowest = Math.min(0, ...training, ...(held_out ?? []), ...chance.map((rho) => -rho));
  return {
    traces,
    layout: {
      xaxis: {
        title: { text: "component" }, range: [0.4, components.length + 0.6], showgrid: false,
        tick0: 1, dtick: Math.max(1, Math.ceil(components.length / 12)),
      },
      yaxis: { title: { text: "correlation" }, range: [lowest - 0.04, 1.04] },
    },
  };
});

if (DATA.curve) {
  const draw = plot("curve", (colour) => {
    const { correlation, held_out, undone, ...by } = DATA.curve;
    const against = chosen("curve-by");
    const x = by[against];
    const kept = x.map((_, i) => i).filter((i) => !undone[i]);
    const taken = x.map((_, i) => i).filter((i) => undone[i]);
    const mode = kept.length > 60 ? "lines" : "lines+markers";
    const unit = against === "seconds" ? " s" : " samples";
    const traces = [{
      x: kept.map((i) => x[i]), y: kept.map((i) => correlation[i]), type: "scatter", mode,
      name: "minibatch", line: { color: colour.s0, dash: "dot" },
      marker: { symbol: "square", size: 5 },
      hovertemplate: `%{x:,}${unit}<br>minibatch %{y:.3f}<extra></extra>`,
    }];
    if (held_out) {
      const seen = kept.filter((i) => held_out[i] !== null);
      traces.push({
        x: seen.map((i) => x[i]), y: seen.map((i) => held_out[i]), type: "scatter",
        mode: "lines+markers", name: "held out", line: { color: colour.s1, width: 2.5 },
        marker: { size: 6 }, hovertemplate: `%{x:,}${unit}<br>held out %{y:.3f}<extra></extra>`,
      });
    }
    if (taken.length) {
      traces.push({
        x: taken.map((i) => x[i]), y: taken.map((i) => correlation[i]), type: "scatter",
        mode: "markers", name: "taken back", marker: { symbol: "x", size: 9, color: colour.ink },
      });
    }
    return {
      traces,
      layout: {
        showlegend: true,
        xaxis: { title: { text: against }, rangemode: "tozero" },
        yaxis: { title: { text: "total correlation" } },
      },
    };
  });
  onChoice("curve-by", draw);
}

plot("recall", (colour) => {
  const { depths, recall, chance } = DATA.retrieval;
  const line = { x: depths, type: "scatter", mode: "lines+markers" };
  const said = "in the first %{x}: %{y:.1%}<extra></extra>";
  return {
    traces: [
      { ...line, y: recall[0], name: "X to Y", line: { color: colour.s1 }, hovertemplate: said },
      {
        ...line, y: recall[1], name: "Y to X", line: { color: colour.s0, dash: "dash" },
        marker: { symbol: "square" }, hovertemplate: said,
      },
      {
        ...line, y: chance, mode: "lines", name: "guessing",
        line: { color: colour.soft, dash: "dot" }, hovertemplate: said,
      },
    ],
    layout: {
      xaxis: {
        title: { text: "k" }, type: "log", tickvals: [1, 2, 5, 10, 20, 50, 100],
        showgrid: false,
      },
      yaxis: { title: { text: "recall@k" }, range: [-0.03, 1.03], tickformat: ".0%" },
    },
  };
});
