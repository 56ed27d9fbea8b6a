/* Experiments: the list with their results, and one experiment: its result first, then tables, charts and cases. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make;

  app.views.experiments = function () {
    return app.data.experiments().then(function (content) {
      if (!content.experiments.length) {
        app.show(make("h1", {}, "Experiments"), make("div.empty", {}, make("p", { role: "status" }, "No experiments yet."), make("p", {}, "Create one: ", make("code", {}, "inferometer sweep EXPERIMENT.yaml"))));
        return;
      }
      app.show(make("h1", {}, "Experiments"), make("ul.list", {}, content.experiments.map(app.experimentLine)));
    });
  };

  app.views.experiment = function () {
    var id = app.query().get("id");
    app.soon();
    return app.data.experiment(id || "").then(draw);
  };
  function draw(content) {
    var row = content.row, measure = app.query().get("measure"), known = content.measures.map(function (entry) { return entry.key; });
    document.title = row.title + " · Inferometer";
    var place = make("div"), about = content.about;
    app.show(make("p", {}, make("a", { href: "experiments.html" }, "All experiments")), make("h1", {}, row.title),
      about ? make("p.traffic", {}, [about.model, about.engine, about.hardware, row.kind === "sweep" ? null : about.workload].filter(Boolean).join(" · ")) : null,
      make("p.muted.small", {}, [app.when(row.started), row.cases + " " + app.caseWords[row.kind], row.over ? null : "not over", about && about.commit ? "commit " + about.commit : null].filter(Boolean).join(" · "), " ", make("code", {}, row.id)),
      answer(content.answer), content.answer.tables.map(table),
      make("section", {}, make("h2", {}, "Charts"), app.charts(content)), place,
      make("section", {}, make("h2", {}, "Definition"), make("details", {}, make("summary", {}, "As it was run"), make("pre", { tabindex: "0" }, app.yaml(content.definition)))));
    place.append(grid(content, known.includes(measure) ? measure : null));
  }
  function answer(content) {
    return make("div.verdict.answer" + (content.tone ? "." + content.tone : ""), { role: "status" }, make("b", {}, content.headline),
      content.notes.filter(Boolean).length ? make("ul", {}, content.notes.filter(Boolean).map(function (text) { return make("li", {}, text); })) : null);
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
  function shownMeasures(content, only) {
    var first = ["ttft_scheduled.p50", "ttft_scheduled.p99", "ttft.p50", "ttft.p99", "tpot.p50", "e2e_scheduled.p50", "e2e.p50", "output_rate", "goodput"];
    var known = content.measures.map(function (entry) { return entry.key; });
    var usual = content.measures.filter(function (entry) { return first.includes(entry.key) && (scheduled(entry.key) === entry.key || !known.includes(scheduled(entry.key))); });
    return only ? content.measures.filter(function (entry) { return entry.key === only; }) : usual.length ? usual : content.measures.slice(0, 6);
  }
  function readable(name) { return name.split(".").pop().replace(/_/g, " "); }
  function grid(content, only) {
    var names = content.axes.length ? content.axes : Array.from(new Set(content.grid.flatMap(function (entry) { return Object.keys(entry.parameters); }))), measures = shownMeasures(content, only);
    var select = make("select", { onchange: function () {
      app.keep("experiment", { id: content.row.id, measure: select.value });
      part.replaceWith(grid(content, select.value || null));
    } }, make("option", { value: "" }, "the usual"), content.measures.map(function (entry) { return make("option", { value: entry.key, selected: entry.key === only }, entry.title); }));
    function isWords(name) { return content.grid.some(function (entry) { return typeof entry.parameters[name] === "string"; }); }
    var heads = names.map(function (name) { return make(isWords(name) ? "th" : "th.right", {}, readable(name)); }).concat(names.length ? [] : make("th", {}, "case"), make("th", {}, "run"), measures.map(function (entry) { return make("th.right", {}, entry.title); }));
    var rows = content.grid.map(function (entry) {
      return make("tr", {}, names.map(function (name) { var value = entry.parameters[name]; return make(isWords(name) ? "td" : "td.right", {}, typeof value === "number" ? app.text.number(value) : String(value ?? "-")); }),
        names.length ? null : make("td", {}, entry.name || ""),
        make("td", {}, entry.run ? app.link("run", { id: entry.run }, entry.verdict || "run") : app.word("failed"), entry.error ? make("div.muted", {}, entry.error) : null),
        measures.map(function (one) { return make("td.right", {}, ((entry.weak || []).includes(one.key) ? "~" : "") + app.text.value(entry.values[one.key], one.unit)); }));
    });
    var part = make("section", {}, make("h2", {}, { ab: "Runs", search: "Steps", sweep: "Cases" }[content.row.kind]), make("div.tools", {}, make("label", {}, "Measure", select)), app.table(heads, rows, ".grid.cases", "Cases"));
    return part;
  }
})();
