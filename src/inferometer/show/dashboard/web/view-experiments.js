/* Experiments: the list with their answers, and one: its answer first, then tables, charts and cases. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make;

  app.views.experiments = function () {
    return app.data.experiments().then(function (found) {
      if (!found.experiments.length) {
        app.show(make("h1", {}, "Experiments"), make("div.empty", {}, make("p", { role: "status" }, "No experiments yet."), make("p", {}, "Create one: ", make("code", {}, "inferometer sweep EXPERIMENT.yaml"))));
        return;
      }
      app.show(make("h1", {}, "Experiments"), make("ul.list", {}, found.experiments.map(app.experimentLine)));
    });
  };

  app.views.experiment = function () {
    var id = app.query().get("id");
    app.soon();
    return app.data.experiment(id || "").then(draw);
  };
  function draw(found) {
    var row = found.row, measure = app.query().get("measure"), known = found.measures.map(function (each) { return each.key; });
    document.title = row.title + " · Inferometer";
    var place = make("div"), about = found.about;
    app.show(make("p", {}, make("a", { href: "experiments.html" }, "All experiments")), make("h1", {}, row.title),
      about ? make("p.traffic", {}, [about.model, about.engine, about.hardware, row.kind === "sweep" ? null : about.workload].filter(Boolean).join(" · ")) : null,
      make("p.muted.small", {}, [app.when(row.started), row.cases + " " + app.caseWords[row.kind], row.over ? null : "not over", about && about.commit ? "commit " + about.commit : null].filter(Boolean).join(" · "), " ", make("code", {}, row.id)),
      answer(found.answer), found.answer.tables.map(table),
      make("section", {}, make("h2", {}, "Charts"), app.charts(found)), place,
      make("section", {}, make("h2", {}, "Definition"), make("details", {}, make("summary", {}, "As it was run"), make("pre", { tabindex: "0" }, app.yaml(found.definition)))));
    place.append(grid(found, known.includes(measure) ? measure : null));
  }
  function answer(found) {
    return make("div.verdict.answer" + (found.tone ? "." + found.tone : ""), { role: "status" }, make("b", {}, found.headline),
      found.notes.filter(Boolean).length ? make("ul", {}, found.notes.filter(Boolean).map(function (text) { return make("li", {}, text); })) : null);
  }
  function table(part) {
    var heads = part.head.map(function (text, at) { return make("th" + (part.right.includes(at) ? ".right" : ""), {}, text); });
    var rows = part.rows.map(function (cells, at) {
      var run = part.runs[at], tone = part.tones[at];
      return make("tr", {}, cells.map(function (text, column) {
        var last = column === cells.length - 1, body = last && tone !== undefined ? make("span.word" + (tone ? "." + tone : ""), {}, text) : column === 0 && run ? app.link("run", { id: run }, text) : text;
        return make("td" + (part.right.includes(column) ? ".right" : ".words"), {}, body);
      }));
    });
    return make("section", {}, make("h2", {}, part.title), app.table(heads, rows, ".grid.answers", part.title));
  }
  function scheduled(key) { return key.replace(/^(ttft|e2e)\./, "$1_scheduled."); }
  function shownMeasures(found, only) {
    var first = ["ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99", "tpot.p50", "e2e_scheduled.p50", "e2e.p50", "output_rate", "goodput"];
    var known = found.measures.map(function (each) { return each.key; });
    var usual = found.measures.filter(function (each) { return first.includes(each.key) && (scheduled(each.key) === each.key || !known.includes(scheduled(each.key))); });
    return only ? found.measures.filter(function (each) { return each.key === only; }) : usual.length ? usual : found.measures.slice(0, 6);
  }
  function readable(name) { return name.split(".").pop().replace(/_/g, " "); }
  function grid(found, only) {
    var names = found.axes.length ? found.axes : Array.from(new Set(found.grid.flatMap(function (each) { return Object.keys(each.parameters); }))), measures = shownMeasures(found, only);
    var select = make("select", { onchange: function () {
      app.keep("experiment", { id: found.row.id, measure: select.value });
      part.replaceWith(grid(found, select.value || null));
    } }, make("option", { value: "" }, "the usual"), found.measures.map(function (each) { return make("option", { value: each.key, selected: each.key === only }, each.title); }));
    var heads = names.map(function (name) { return make("th.right", {}, readable(name)); }).concat(names.length ? [] : make("th", {}, "case"), make("th", {}, "run"), measures.map(function (each) { return make("th.right", {}, each.title); }));
    var rows = found.grid.map(function (each) {
      return make("tr", {}, names.map(function (name) { var value = each.parameters[name]; return make("td.right", {}, typeof value === "number" ? app.text.number(value) : String(value ?? "-")); }),
        names.length ? null : make("td", {}, each.name || ""),
        make("td", {}, each.run ? app.link("run", { id: each.run }, each.verdict || "run") : app.word("failed"), each.error ? make("div.muted", {}, each.error) : null),
        measures.map(function (one) { return make("td.right", {}, ((each.weak || []).includes(one.key) ? "~" : "") + app.text.value(each.values[one.key], one.unit)); }));
    });
    var part = make("section", {}, make("h2", {}, { ab: "Runs", search: "Steps", sweep: "Cases" }[found.row.kind]), make("div.tools", {}, make("label", {}, "Measure", select)), app.table(heads, rows, ".grid.cases", "Cases"));
    return part;
  }
})();
