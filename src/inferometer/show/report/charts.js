/* Draws each figure.chart when it comes near the screen, in the colours of the theme, and again when either changes. */
(function () {
  "use strict";
  var SIDES = 96; /* axis labels beside a plot of several panels, which cannot size themselves */
  var BESIDE = 70, LETTER = 6.6, SYMBOL = 30; /* of a legend: the axis beside it, a letter, what is beside a name */
  var themes = JSON.parse(document.getElementById("chart-themes").textContent);
  var drawn = new Map();

  function fitted(spec, width) {
    var copy = JSON.parse(JSON.stringify(spec));
    delete copy.title; /* the caption says it, and wraps */
    if (copy.vconcat) {
      copy.vconcat.forEach(function (view) { view.width = Math.max(160, width - SIDES); });
    } else {
      copy.width = "container";
      copy.autosize = { type: "fit-x", contains: "padding" };
    }
    legends(copy, width - BESIDE);
    if (width < 480 && copy.config === undefined) copy.config = { axis: { labelFontSize: 10 } };
    return copy;
  }
  /* As many names beside each other as there is room for: a legend does not wrap, it is cut off. */
  function legends(part, width) {
    if (!part || typeof part !== "object") return;
    var colour = part.encoding && part.encoding.color;
    if (colour && colour.legend && colour.legend.columns) {
      var names = colour.legend.values || colour.scale.domain;
      var widest = Math.max.apply(null, names.map(function (name) { return String(name).length; })) * LETTER;
      colour.legend.labelLimit = Math.max(80, Math.min(300, width - SYMBOL));
      colour.legend.columns = Math.max(1, Math.floor(width / (Math.min(widest, colour.legend.labelLimit) + SYMBOL)));
    }
    (part.layer || part.vconcat || []).forEach(function (inner) { legends(inner, width); });
  }
  function draw(figure) {
    var plot = figure.querySelector(".plot"), width = plot.clientWidth;
    var spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    var options = {
      actions: false, renderer: "svg", ast: true, config: themes[window.inferometerTheme.current()], mode: "vega-lite"
    };
    var before = drawn.get(figure);
    drawn.set(figure, { width: width, view: before && before.view });
    return vegaEmbed(plot, fitted(spec, width), options).then(function (result) {
      if (before && before.view) before.view.finalize();
      drawn.set(figure, { width: width, view: result.view });
      figure.dataset.drawn = "yes";
    }).catch(function (error) {
      plot.textContent = "This chart could not be drawn: " + error.message;
    });
  }
  function all() { return Array.prototype.slice.call(document.querySelectorAll("figure.chart")); }
  function again() { drawn.forEach(function (_, figure) { draw(figure); }); }

  var observer = "IntersectionObserver" in window ? new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.isIntersecting) { observer.unobserve(entry.target); draw(entry.target); }
    });
  }, { rootMargin: "400px" }) : null;
  all().forEach(function (figure) { if (observer) observer.observe(figure); else draw(figure); });

  document.addEventListener("themechange", again);
  window.addEventListener("beforeprint", function () { all().forEach(function (f) { if (!drawn.has(f)) draw(f); }); });
  var pause;
  window.addEventListener("resize", function () {
    clearTimeout(pause);
    pause = setTimeout(function () {
      drawn.forEach(function (state, figure) {
        if (Math.abs(state.width - figure.querySelector(".plot").clientWidth) > 8) draw(figure);
      });
    }, 150);
  });
  window.inferometerCharts = { draw: draw, all: all };
})();
