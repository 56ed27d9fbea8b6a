/* Measures over time: a section with a chart per measure, toggles for the series, and the change points. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, off, figures, pending = Promise.resolve();
  var FIRST = ["ttft_scheduled", "ttft", "tpot", "output_rate", "avg_latency", "latency"];

  app.views.history = function () {
    if (app.query().get("family")) app.soon();
    return app.data.histories().then(function (answer) {
      var family = app.query().get("family");
      if (!answer.histories.length) { app.show(make("h1", {}, "History"), make("div.empty", {}, make("p", { role: "status" }, "No finished runs yet."), make("p", {}, "Create one: ", make("code", {}, "inferometer run")))); return; }
      if (!family) { list(answer.histories); return; }
      var one = answer.histories.find(function (entry) { return entry.id === family; });
      if (!one) { app.show(make("h1", {}, "History"), app.failed({ message: "no history " + family, hint: "its runs may have been deleted" })); return; }
      draw(one);
    });
  };
  function list(histories) {
    var newest = histories.reduce(function (a, b) { return a.updated > b.updated ? a : b; });
    app.show(make("h1", {}, "History"), make("p.muted", {}, "Last update: " + app.when(newest.updated)),
      make("ul.list", {}, histories.map(function (entry) {
        return make("li", {}, app.link("history", { family: entry.id }, entry.title), make("div.muted", {},
          [app.names.kinds[entry.kind], entry.runs + (entry.runs === 1 ? " run" : " runs"), entry.series.length + " series", "last " + app.when(entry.updated)].join(" · ")));
      })));
  }
  function draw(family) {
    var query = app.query(), names = query.get("measures") ? query.get("measures").split(",") : null;
    var hidden = new Set((query.get("off") || "").split(",")), only = query.get("series");
    off = new Set(family.series.filter(function (entry) { return hidden.has(entry.id) || (only && entry.id !== only); }).map(function (entry) { return entry.label; }));
    figures = [];
    var sections = new Map();
    family.measures.forEach(function (entry) {
      if (!sections.has(entry.name)) sections.set(entry.name, []);
      sections.get(entry.name).push(entry);
    });
    var order = Array.from(sections.keys()).sort(function (a, b) { return rank(a) - rank(b); });
    var usual = order.filter(function (name) { return !(name === "ttft" && sections.has("ttft_scheduled")); });
    var open = names || usual.slice(0, 3);
    document.title = family.title + " · Inferometer";
    app.show(make("p", {}, make("a", { href: "history.html" }, "All histories")), make("h1", {}, family.title),
      make("p.muted", {}, [app.names.kinds[family.kind], family.runs + " runs", "last update " + app.when(family.updated)].join(" · ")),
      family.left_out ? make("p.muted", {}, family.left_out + " more series are not shown") : null,
      toggles(family), grouping(family), bySeries() ? family.series.map(function (entry) { return ofSeries(family, entry, order, sections); })
        : order.map(function (name) { return section(family, name, sections.get(name), open); }), tradeOffs(family));
  }
  function bySeries() { return app.query().get("by") === "series"; }
  /* A section per measure with all series, or a section per series (a pair of lengths, a batch size) with its measures. */
  function grouping(family) {
    if (family.series.length < 2) return null;
    var select = make("select", { onchange: function () { app.keep("history", { family: family.id, by: select.value, off: offIds(family) }); draw(family); } },
      make("option", { value: "" }, "measure"), make("option", { value: "series", selected: bySeries() }, "series"));
    return make("div.tools", {}, make("label", {}, "Group by", select));
  }
  function ofSeries(family, series, order, sections) {
    var others = new Set(family.series.map(function (entry) { return entry.label; }).filter(function (label) { return label !== series.label; }));
    var first = order.slice(0, 4).flatMap(function (name) { return sections.get(name).filter(function (entry) { return /^[^.]+$|\.(mean|p50|p99)$/.test(entry.key); }); });
    var place = make("div", {}, make("p.muted", {}, "Loading…")), loaded = false;
    var part = make("details.part", { "data-name": series.label, open: family.series.indexOf(series) === 0, ontoggle: function () {
      if (part.open && !loaded) { loaded = true; load(family, first, place, others); }
    } }, make("summary", {}, make("h2", {}, series.label), make("small", {}, " " + series.runs + (series.runs === 1 ? " run" : " runs"))), place);
    return part;
  }
  function tradeOffs(family) {
    if (family.series.length < 2 || family.kind !== "serving") return null;
    var place = make("div", {}, make("p.muted", {}, "Loading…")), loaded = false;
    var part = make("details.part", { "data-name": "trade-offs", open: (app.query().get("measures") || "").split(",").includes("trade-offs"), ontoggle: function () {
      if (part.open && !loaded) {
        loaded = true;
        app.data.tradeOffs(family.id).then(function (answer) { place.replaceChildren(); app.fill(place, [answer.charts.length ? app.charts(answer) : make("p.muted", {}, "These runs have no data for a trade-off chart.")]); })
          .catch(function (error) { place.replaceChildren(app.failed(error)); });
      }
      if (!bySeries()) write(family);
    } }, make("summary", {}, make("h2", {}, "Trade-offs"), make("small", {}, " the newest run of each series")), place);
    return part;
  }
  /* Series have short ids in addresses: their names would make links too long. */
  function offIds(family) { return family.series.filter(function (entry) { return off.has(entry.label); }).map(function (entry) { return entry.id; }).join(","); }
  function rank(name) { var at = FIRST.indexOf(name); return at < 0 ? FIRST.length : at; }
  function write(family) {
    var open = Array.from(document.querySelectorAll("details.part[open]")).map(function (entry) { return entry.dataset.name; });
    app.keep("history", { family: family.id, off: offIds(family), measures: open.join(",") });
  }
  function toggles(family) {
    if (family.series.length < 2) return null;
    var buttons = family.series.map(function (entry) {
      return make("button.toggle", { type: "button", "aria-pressed": String(!off.has(entry.label)), "data-series": entry.label, onclick: function (event) {
        if (off.has(entry.label)) off.delete(entry.label); else off.add(entry.label);
        event.currentTarget.setAttribute("aria-pressed", String(!off.has(entry.label)));
        changed(family);
      } }, make("span.swatch"), entry.label);
    });
    function colour() {
      var colours = app.names.themes[window.inferometerTheme.current()].range.category;
      buttons.forEach(function (button, at) { button.querySelector(".swatch").style.background = colours[at % colours.length]; });
    }
    colour();
    document.addEventListener("themechange", colour);
    function all(on) {
      off = new Set(on ? [] : family.series.map(function (entry) { return entry.label; }));
      buttons.forEach(function (button) { button.setAttribute("aria-pressed", String(on)); });
      changed(family);
    }
    return make("div.chips", { role: "group", "aria-label": "Series" }, buttons,
      make("button", { type: "button", onclick: function () { all(true); } }, "all"), make("button", { type: "button", onclick: function () { all(false); } }, "none"));
  }
  function changed(family) {
    write(family);
    figures.forEach(function (entry) { app.redraw(entry.figure, shown(family, entry, off)); });
  }
  /* The series that are switched on. The toggles show the colours, so that the charts need no legend. */
  function shown(family, line, hidden) {
    var spec = app.without(line.spec, line.field, hidden);
    if (family.series.length > 1) {
      (spec.layer || []).forEach(function (layer) { if (layer.encoding && layer.encoding.color) layer.encoding.color.legend = null; });
    }
    if (hidden !== off) delete spec.title.subtitle; /* it counts all series */
    return spec;
  }
  function section(family, name, measures, open) {
    var place = make("div", {}, make("p.muted", {}, "Loading…")), loaded = false;
    var part = make("details.part", { "data-name": name, open: open.includes(name), ontoggle: function () {
      if (part.open && !loaded) { loaded = true; load(family, measures, place); }
      write(family);
    } }, make("summary", {}, make("h2", {}, measures[0].section), make("small", {}, " " + (measures[0].direction === "lower" ? "lower is better" : "higher is better"))), place);
    return part;
  }
  function load(family, measures, place, others) {
    /* one after the other: the first section appears while the server computes the others */
    var mine = pending.then(function () { return app.data.history(family.id, measures.map(function (entry) { return entry.key; })); });
    pending = mine.catch(function () { /* shown in place of the chart */ });
    mine.then(function (answer) {
      var charts = answer.lines.map(function (line) {
        if (!line.chart) return make("p.muted", {}, line.note || "");
        var drawn = { spec: line.chart.spec, field: line.field };
        drawn.figure = app.figure({ name: line.key.replace(/\W/g, "-"), title: line.chart.title, spec: shown(family, drawn, others || off) });
        if (!others) figures.push(drawn);
        return drawn.figure;
      });
      place.replaceChildren(make("div.charts", {}, charts), make("div", {}, answer.lines.map(function (line) { return changesText(family, line, others); })));
    }).catch(function (error) { place.replaceChildren(app.failed(error)); });
  }
  function changesText(family, line, others) {
    var measure = family.measures.find(function (entry) { return entry.key === line.key; }), unit = measure.unit;
    var items = Object.entries(line.changes).filter(function (pair) { return !others || !others.has(pair[0]); }).flatMap(function (pair) {
      return pair[1].map(function (entry) {
        return make("li", {}, measure.title + (Object.keys(line.series).length > 1 ? ", " + pair[0] : "") + ": " + (entry.drift ? "drifts from " : "from ") +
          app.text.value(entry.before, unit) + " to " + app.text.value(entry.after, unit) + (entry.change === null ? "" : " (" + app.text.change(entry.change, true) + ")") + " since ",
        app.link("run", { id: entry.run }, app.when(entry.at)));
      });
    });
    return items.length ? make("ul.changes", { "aria-label": "Changes" }, items) : null;
  }
})();
