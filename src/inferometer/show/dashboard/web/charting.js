/* Figures that draw themselves. Vega and the drawing script of the report are loaded with the first figure. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, loaded = {}, AGAIN_MS = 2000;
  app.script = function (address) {
    return new Promise(function (done, failed) {
      var element = make("script", { src: address, onload: done, onerror: function () { element.remove(); failed(new Error("could not load " + address)); } });
      document.head.append(element);
    });
  };
  /* Loads every script once, also if the server failed between two of them: Vega cannot be loaded twice. */
  function once(address) {
    loaded[address] = loaded[address] || app.script(address).catch(function (error) { delete loaded[address]; throw error; });
    return loaded[address];
  }
  function drawing() {
    if (!document.getElementById("chart-themes")) {
      var themes = make("script", { type: "application/json", id: "chart-themes" });
      themes.textContent = JSON.stringify(app.names.themes);
      document.head.append(themes);
    }
    return once(app.names.vega).then(function () { return once(app.names.drawing); }).then(function () { return window.inferometerCharts; });
  }
  /* A view with charts loads the scripts while the server computes its answer. */
  app.soon = function () { drawing().catch(function () { /* the first chart tries again and reports the error */ }); };
  /* Draws the charts one after the other: the first one appears early, and the page reacts between two charts. */
  var turn = Promise.resolve();
  function inTurn(work) {
    turn = turn.then(function () { return new Promise(function (next) { setTimeout(next, 0); }); }).then(work);
    return turn;
  }
  function near(element, then) {
    if (!("IntersectionObserver" in window)) { then(); return; }
    new IntersectionObserver(function (seen, observer) {
      if (seen.some(function (entry) { return entry.isIntersecting; })) { observer.disconnect(); then(); }
    }, { rootMargin: "400px" }).observe(element);
  }
  function put(figure, spec) { figure.querySelector("script").textContent = JSON.stringify(spec); }
  function isEmpty(part) { return Boolean(part && part.data && Array.isArray(part.data.values) && !part.data.values.length); }
  function draw(figure) {
    if (isEmpty(JSON.parse(figure.querySelector("script").textContent))) {
      figure.querySelector(".plot").replaceChildren(make("p.muted", {}, "All series are hidden."));
      figure.dataset.drawn = "yes";
      return Promise.resolve();
    }
    return drawing().then(function (charts) { return charts.draw(figure); })
      .catch(function (error) { /* the server may restart */
        figure.querySelector(".plot").textContent = error.message + "; trying again";
        setTimeout(function () { if (figure.isConnected) draw(figure); }, AGAIN_MS);
      });
  }
  app.figure = function (chart, wide) {
    var spec = chart.spec, subtitle = (spec.title && spec.title.subtitle) || "";
    var figure = make("figure.chart" + (wide || spec.vconcat || spec.hconcat ? ".wide" : ""), { id: "chart-" + chart.name },
      make("figcaption", {}, chart.title, subtitle ? make("small", {}, [].concat(subtitle).join(" ")) : null),
      make("div.plot", { role: "img", "aria-label": chart.title }), make("script", { type: "application/json" }));
    put(figure, spec);
    near(figure, function () { inTurn(function () { return figure.isConnected ? draw(figure) : null; }); });
    return figure;
  };
  /* The same figure with other data: the old chart stays until the new one is drawn. */
  app.redraw = function (figure, spec) {
    put(figure, spec);
    return figure.dataset.drawn ? draw(figure) : Promise.resolve();
  };
  app.charts = function (content) {
    var figures = (content.charts || []).map(function (chart) { return app.figure(chart); });
    var absent = (content.absent || []).map(function (chart) { return make("li", {}, chart.title + ": " + chart.why); });
    return [figures.length ? make("div.charts", {}, figures) : null,
      content.note ? make("p.muted", {}, content.note) : null,
      absent.length ? make("details", {}, make("summary", {}, absent.length + (absent.length === 1 ? " chart has" : " charts have") + " no data in this run"), make("ul.muted", {}, absent)) : null];
  };
  window.inferometerOpenRun = function (id) { location.href = app.address("run", { id: id }); };
  /* The same chart with the points of only some runs. */
  app.only = function (spec, ids) {
    return JSON.parse(JSON.stringify(spec), function (name, value) {
      return name === "values" && Array.isArray(value) ? value.filter(function (row) { return !row || !row.run || ids.has(row.run); }) : value;
    });
  };
  /* A trade-off chart with other fields of the data as colour, shape or facets. */
  app.recoded = function (spec, choice) {
    var copy = JSON.parse(JSON.stringify(spec)), rows = (copy.data && copy.data.values) || [];
    function domain(field) { return Array.from(new Set(rows.map(function (row) { return String(row[field]); }))); }
    (copy.layer || []).forEach(function (layer) {
      var encoding = layer.encoding || {};
      if (encoding.color && encoding.color.field && choice.colour) {
        var names = domain(choice.colour);
        encoding.color = Object.assign({}, encoding.color, { field: choice.colour, scale: { domain: names }, legend: names.length > 1 ? { columns: 2 } : null });
      }
      if (layer.name === "points" && choice.shape) encoding.shape = { field: choice.shape, type: "nominal", title: null, legend: { orient: "bottom", columns: 2 } };
      if (layer.name === "lines" && choice.colour) encoding.detail = (encoding.detail || []).concat([{ field: choice.colour }, { field: "stack" }]);
    });
    if (!choice.facet) return copy;
    copy.layer.forEach(function (layer) { if (layer.name === "lines") delete layer.data; }); /* every facet draws only its own lines */
    var inner = { layer: copy.layer.filter(function (layer) { return !layer.data; }), height: 220 };
    return { title: copy.title, data: copy.data, columns: 2, facet: { field: choice.facet, type: "nominal", title: null }, spec: inner };
  };
  /* The specification without the rows of hidden series, in all places with data. */
  app.without = function (spec, field, off) {
    function kept(rows) { return Array.isArray(rows) ? rows.filter(function (row) { return !off.has(String(row[field])); }) : rows; }
    return JSON.parse(JSON.stringify(spec), function (name, value) {
      if (name === "layer" && Array.isArray(value)) return value.filter(function (layer) { return !isEmpty(layer); });
      if (name === "values" && Array.isArray(value) && value.some(function (row) { return row && typeof row === "object" && field in row; })) return kept(value);
      return value;
    });
  };
})();
