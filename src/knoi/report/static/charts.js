// Charts of lines: correlations per component, recall, the learning curve.

plot("correlations", (colour) => {
  const { series, chance } = DATA.correlations;
  const components = series[0].values.map((_, k) => k + 1);
  const traces = [];
  if (chance) {
    // The band of a component extends halfway to its neighbours.
    const edges = components.flatMap((k) => [k - 0.5, k + 0.5]);
    const upper = chance.flatMap((rho) => [rho, rho]);
    traces.push({
      x: [...edges, ...[...edges].reverse()],
      y: [...upper, ...upper.map((rho) => -rho).reverse()],
      type: "scatter", mode: "lines", fill: "toself", hoverinfo: "skip",
      line: { width: 0 }, fillcolor: colour.line, opacity: 0.8, name: "95% of chance",
    });
  }
  series.forEach(({ name, values, significant }, k) => {
    const trace = line(colour, k, name, components, values);
    const about = `component %{x}<br>${plain(name)} %{y:.3f}`;
    trace.hovertemplate = `${about}<extra></extra>`;
    if (significant) {
      const { color } = trace.line;
      trace.marker = {
        size: 9, color: significant.map((is) => (is ? color : colour.sheet)),
        line: { color, width: 2 },
      };
      trace.text = significant.map((is) => (is ? "significant" : "could be noise"));
      trace.hovertemplate = `${about}<br>%{text}<extra></extra>`;
    }
    traces.push(trace);
  });
  const lowest = Math.min(
    0, ...series.flatMap(({ values }) => values), ...(chance ?? []).map((rho) => -rho));
  return {
    traces,
    layout: {
      showlegend: true,
      xaxis: {
        title: { text: "component" }, range: [0.4, components.length + 0.6], showgrid: false,
        tick0: 1, dtick: Math.max(1, Math.ceil(components.length / 12)),
      },
      yaxis: { title: { text: "correlation" }, range: [lowest - 0.04, 1.04] },
    },
  };
});

plot("recall", (colour) => {
  const { depths, series, chance } = DATA.recall;
  const traces = series.map(({ name, values }, k) => ({
    ...line(colour, k, name, depths, values),
    hovertemplate: `${plain(name)}, first %{x}: %{y:.1%}<extra></extra>`,
  }));
  traces.push({
    x: depths, y: chance, type: "scatter", mode: "lines", name: "chance",
    line: { color: colour.soft, dash: "dot" },
    hovertemplate: "chance, first %{x}: %{y:.2%}<extra></extra>",
  });
  return {
    traces,
    layout: {
      xaxis: {
        title: { text: "k" }, type: "log", tickvals: [1, 2, 5, 10, 20, 50, 100],
        showgrid: false,
      },
      yaxis: { title: { text: "recall@k" }, range: [-0.03, 1.03], tickformat: ".0%" },
    },
  };
});

if (DATA.curve) {
  const draw = plot("curve", (colour) => {
    const { correlation, held_out, rolled_back, ...axes } = DATA.curve;
    const by = checked("curve-by");
    const x = axes[by];
    const unit = by === "seconds" ? " s" : " samples";
    const steps = x.map((_, i) => i);
    const curve = (k, name, values, kept) => ({
      ...line(colour, k, name, kept.map((i) => x[i]), kept.map((i) => values[i])),
      mode: kept.length > 60 ? "lines" : "lines+markers",
      hovertemplate: `%{x:,}${unit}<br>${name} %{y:.3f}<extra></extra>`,
    });
    const kept = steps.filter((i) => !rolled_back[i]);
    const traces = [curve(0, "minibatch", correlation, kept)];
    if (held_out)
      traces.push(curve(1, "held out", held_out, kept.filter((i) => held_out[i] !== null)));
    const failed = steps.filter((i) => rolled_back[i]);
    if (failed.length) {
      traces.push({
        ...curve(2, "rolled back", correlation, failed), mode: "markers",
        marker: { symbol: "x", size: 9, color: colour.ink },
      });
    }
    return {
      traces,
      layout: {
        showlegend: true,
        xaxis: { title: { text: by }, rangemode: "tozero" },
        yaxis: { title: { text: "total correlation" } },
      },
    };
  });
  onChecked("curve-by", draw);
}
