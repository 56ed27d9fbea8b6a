/* The first page: every line of history with its latest numbers and its state, runs in progress, the last experiments. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, AGAIN_MS = 10000, timer = null;
  var STATES = { worse: "bad", better: "good", quiet: "doubt", few: "", steady: "" };

  app.views.index = function () { return load(); };
  function load() {
    clearTimeout(timer);
    return app.data.overview().then(function (content) {
      draw(content);
      if (app.names.live) timer = setTimeout(function () { load().catch(function (error) { if (error.gone) timer = setTimeout(load, 1000); }); }, AGAIN_MS);
    });
  }
  function draw(content) {
    if (!content.total) {
      app.show(make("h1", {}, "Overview"), make("div.empty", {}, make("p", { role: "status" }, "No runs yet."), make("p", {}, "Create one: ", make("code", {}, "inferometer run"))));
      return;
    }
    var worse = content.lines.filter(function (line) { return line.state === "worse"; }).length;
    var repeated = content.lines.filter(function (line) { return line.runs > 1; }), once = content.lines.filter(function (line) { return line.runs === 1; });
    app.show(make("h1", {}, "Overview"),
      make("p.muted", { role: "status" }, summary(content, worse)),
      content.running.length ? running(content.running) : null,
      lines("Histories", repeated, content.left_out ? make("p.muted", {}, content.left_out + " more lines are on the page of histories.") : null),
      content.experiments.length ? experiments(content.experiments) : null,
      lines("One run so far", once, null, true));
  }
  function summary(content, worse) {
    var parts = [app.text.number(content.total) + (content.total === 1 ? " run" : " runs"), content.lines.length + (content.lines.length === 1 ? " line of history" : " lines of history")];
    if (content.lines.some(function (line) { return line.runs > 1; })) parts.push(worse ? worse + " worse" : "none worse");
    return parts.join(", ") + ".";
  }
  function running(rows) {
    return make("section", { id: "running" }, make("h2", {}, "Running now"), make("ul.list", {}, rows.map(function (row) {
      return make("li", {}, app.word("running"), " ", app.link("run", { id: row.id }, [row.name, row.what, row.workload, row.load].filter(Boolean).join(" · ") || row.id),
        make("span.muted", {}, " since " + app.when(row.started)));
    })));
  }
  function number(line, title, names) {
    var content = line.numbers.find(function (entry) { return names.includes(entry.key); });
    return make("td.right" + (content ? "" : ".none"), { "data-name": title }, content ? (content.weak ? "~" : "") + app.text.value(content.value, content.unit === "tokens/s" ? "" : content.unit) : "-");
  }
  /* A heading for each model, engine and hardware; a row for each of its lines. */
  function lines(title, content, more, single) {
    if (!content.length) return null;
    var numbers = ["TTFT p50", "TTFT p99", "TPOT p50", "Output tok/s"], families = new Map();
    var heads = [].concat("Workload · load", single ? [] : ["State", "Trend"], numbers, single ? "When" : ["Runs", "Last"]);
    content.forEach(function (line) { if (!families.has(line.family)) families.set(line.family, []); families.get(line.family).push(line); });
    var rows = Array.from(families.values()).flatMap(function (own) {
      var texts = own.map(words);
      return [heading(own[0], heads.length)].concat(own.map(function (line, at) { return row(line, single, texts.indexOf(texts[at]) === texts.lastIndexOf(texts[at]) ? texts[at] : line.label); }));
    });
    return make("section", {}, make("h2", {}, title),
      app.table(heads.map(function (text) { return make("th" + (numbers.includes(text) || text === "Runs" ? ".right" : ""), {}, text); }), rows, ".runs.cards.overview", title), more);
  }
  function heading(line, columns) {
    return make("tr.group", {}, make("th", { colspan: String(columns), scope: "rowgroup" }, app.link("history", { family: line.family }, line.title), line.kind === "serving" ? null : make("span.muted", {}, " " + app.names.kinds[line.kind])));
  }
  function words(line) { return [line.workload, line.load].filter(Boolean).join(" · ") || (line.label === "all runs" ? app.names.kinds[line.kind] : line.label); }
  /* `text` is workload and load; for lines with the same ones, such as batch sizes of one run, what differs. */
  function row(line, single, text) {
    var others = line.numbers.length && !line.numbers.some(function (entry) { return /^(ttft|tpot|output_rate)/.test(entry.key); });
    var cells = others ? [make("td.words", { colspan: "4" }, line.numbers.map(function (entry) { return entry.title + " " + (entry.weak ? "~" : "") + app.text.value(entry.value, entry.unit); }).join(", "))]
      : [number(line, "TTFT p50", ["ttft_scheduled.p50", "ttft.p50"]), number(line, "TTFT p99", ["ttft_scheduled.p99", "ttft.p99"]), number(line, "TPOT p50", ["tpot.p50"]), number(line, "Output tok/s", ["output_rate"])];
    return make("tr", {}, make("td.name", {}, app.link("history", { family: line.family, series: line.series }, text)),
      single ? null : [make("td.words", {}, state(line)), make("td", {}, spark(line))], cells,
      single ? null : make("td.right", { "data-name": "Runs" }, app.text.number(line.runs)),
      make("td", { "data-name": single ? "When" : "Last" }, app.link("run", { id: line.run }, app.day(line.updated))));
  }
  function state(line) {
    var style = STATES[line.state];
    if (line.state === "few") return make("span.muted", {}, line.state_text);
    return make("span.word" + (style ? "." + style : ""), {}, line.since ? app.link("run", { id: line.since }, line.state_text) : line.state_text);
  }
  /* A line of 96 by 22 pixels; its last value is a dot. */
  function spark(line) {
    var values = line.spark;
    if (values.length < 2) return "";
    var low = Math.min.apply(null, values), high = Math.max.apply(null, values), span = high - low || 1, space = "http://www.w3.org/2000/svg";
    function at(index) { return [2 + 92 * index / (values.length - 1), 20 - 18 * (values[index] - low) / span]; }
    var svg = document.createElementNS(space, "svg"), path = document.createElementNS(space, "polyline"), dot = document.createElementNS(space, "circle"), last = at(values.length - 1);
    Object.entries({ viewBox: "0 0 96 22", width: 96, height: 22, role: "img", class: "spark", "aria-label": line.spark_title + ", the last " + values.length + " runs, " + line.state_text }).forEach(function (pair) { svg.setAttribute(pair[0], pair[1]); });
    path.setAttribute("points", values.map(function (_, index) { return at(index).map(function (part) { return part.toFixed(1); }).join(","); }).join(" "));
    dot.setAttribute("cx", last[0]); dot.setAttribute("cy", last[1]); dot.setAttribute("r", 2);
    svg.append(path, dot);
    return svg;
  }
  function experiments(rows) {
    return make("section", {}, make("h2", {}, "Last experiments"), make("ul.list", {}, rows.map(app.experimentLine)), make("p", {}, make("a", { href: "experiments.html" }, "All experiments")));
  }
  app.experimentLine = function (row) {
    return make("li", {}, app.link("experiment", { id: row.id }, row.title), " ", row.over ? null : app.word("in progress"),
      make("div" + (row.tone ? ".answer-text." + row.tone + "-text" : ".answer-text"), {}, row.answer),
      make("div.muted.small", {}, [KINDS[row.kind] || row.kind, app.when(row.started), row.cases + " " + CASES[row.kind], row.failed ? row.failed + " failed" : null].filter(Boolean).join(" · ")));
  };
  var CASES = app.caseWords = { ab: "runs", search: "steps", sweep: "cases" };
  var KINDS = { ab: "A/B test", search: "search", sweep: "sweep" };
})();
