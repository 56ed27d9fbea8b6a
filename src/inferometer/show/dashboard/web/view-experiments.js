/* Experiments: the list, and one with its cases as a grid and as curves. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make;

  app.views.experiments = function () {
    return app.data.experiments().then(function (found) {
      if (!found.experiments.length) {
        app.show(make("h1", {}, "Experiments"), make("div.empty", {}, make("p", { role: "status" }, "No experiments yet."), make("p", {}, "Make one: ", make("code", {}, "inferometer sweep EXPERIMENT.yaml"))));
        return;
      }
      app.show(make("h1", {}, "Experiments"), make("ul.list", {}, found.experiments.map(function (each) {
        return make("li", {}, app.link("experiment", { id: each.id }, each.name || each.id), " ", each.over ? null : app.word("partial"),
          make("div.muted", {}, [each.kind, app.when(each.started), each.cases + " cases", each.failed ? each.failed + " failed" : null].filter(Boolean).join(" · ")));
      })));
    });
  };

  app.views.experiment = function () {
    var id = app.query().get("id");
    return app.data.experiment(id || "").then(draw);
  };
  function draw(found) {
    var measure = app.query().get("measure"), known = found.measures.map(function (each) { return each.key; });
    document.title = (found.name || found.id) + " · Inferometer";
    var place = make("div");
    app.show(make("p", {}, make("a", { href: "experiments.html" }, "All experiments")), make("h1", {}, found.name || found.id),
      make("p.muted", {}, [found.kind, app.when(found.started), found.cases + " cases", found.over ? null : "not over"].filter(Boolean).join(" · ")),
      app.charts(found), place,
      found.result ? make("section", {}, make("h2", {}, "Result"), make("pre", { tabindex: "0" }, app.yaml(found.result))) : null);
    place.append(grid(found, known.includes(measure) ? measure : null));
  }
  function axes(found) {
    return Array.from(new Set(found.grid.flatMap(function (each) { return Object.keys(each.parameters || {}); })));
  }
  function shownMeasures(found, only) {
    var first = ["ttft.p50", "ttft.p99", "tpot.p50", "e2e.p50", "output_rate", "goodput"];
    var usual = found.measures.filter(function (each) { return first.includes(each.key); });
    return only ? found.measures.filter(function (each) { return each.key === only; }) : usual.length ? usual : found.measures.slice(0, 6);
  }
  function grid(found, only) {
    var names = axes(found), measures = shownMeasures(found, only);
    var select = make("select", { onchange: function () {
      app.keep("experiment", { id: found.id, measure: select.value });
      part.replaceWith(grid(found, select.value || null));
    } }, make("option", { value: "" }, "the usual"), found.measures.map(function (each) { return make("option", { value: each.key, selected: each.key === only }, each.title); }));
    var heads = [make("th", {}, "case")].concat(names.map(function (name) { return make("th", {}, name); }), make("th", {}, "run"), measures.map(function (each) { return make("th.right", {}, each.title); }));
    var rows = found.grid.map(function (each) {
      return make("tr", {}, make("td", {}, each.name || ""), names.map(function (name) { return make("td", {}, String((each.parameters || {})[name] ?? "-")); }),
        make("td", {}, each.run ? app.link("run", { id: each.run }, each.verdict || "run") : app.word("failed"), each.error ? make("div.muted", {}, each.error) : null),
        measures.map(function (one) { return make("td.right", {}, app.number(each.values[one.key], one.unit)); }));
    });
    var part = make("section", {}, make("h2", {}, "Cases"), make("div.tools", {}, make("label", {}, "Measure", select),
      ids(found).length > 1 ? app.link("compare", { before: ids(found)[0], after: ids(found).slice(1, 8).join(",") }, "compare") : null), app.table(heads, rows, ".grid"));
    return part;
  }
  function ids(found) { return found.grid.map(function (each) { return each.run; }).filter(Boolean); }
})();
