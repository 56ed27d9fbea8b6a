/* Runs of any model, engine and hardware, by filter: one chart at a time, and three tables of the same runs. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, MOST_LISTED = 30, DRAWN = ["throughput_per_gpu", "total_rate", "tokens_per_s_user", "user_speed.p50"], state, answer, place;

  app.views.explore = function () {
    var query = app.query();
    state = { search: query.get("search") || "", where: query.getAll("where"), chart: query.get("chart") || "", colour: query.get("colour") || "", shape: query.get("shape") || "", facet: query.get("facet") || "" };
    place = make("div");
    app.show(make("h1", {}, "Explore"), make("p.muted", {}, "Runs of any model, engine and hardware in one chart. Points of one series are joined in the order of load."), filters(), place);
    return load();
  };
  function write() { app.keep("explore", state); }
  function filters() {
    var search = make("input", { type: "search", value: state.search, placeholder: "model, name, tag, …" });
    var where = make("input", { type: "text", value: state.where.join(" & "), placeholder: "hardware=~H200 & ttft.p99 < 500ms", spellcheck: "false", autocapitalize: "off" });
    return make("form.tools", { role: "search", onsubmit: function (event) {
      event.preventDefault();
      state.search = search.value; state.where = where.value.split("&").map(function (text) { return text.trim(); }).filter(Boolean);
      load();
    } }, make("label.wide", {}, "Search", search), make("label.wide", {}, "Filter", where), make("button.primary", { type: "submit" }, "Show"));
  }
  function load() {
    write();
    app.soon();
    return app.data.explore({ where: state.where, search: state.search }).then(function (content) { answer = content; draw(); })
      .catch(function (error) { place.replaceChildren(app.failed(error)); });
  }
  function draw() {
    place.replaceChildren();
    if (!answer.rows.length) { place.append(make("p.muted", { role: "status" }, "No finished serving run matches.")); return; }
    var chart = answer.charts.find(function (entry) { return entry.name === state.chart; }) || answer.charts[0];
    app.fill(place, [make("p.muted", { role: "status", id: "count" }, answer.shown < answer.total ? "The newest " + answer.shown + " of " + app.text.number(answer.total) + " runs" : answer.shown + (answer.shown === 1 ? " run" : " runs")),
      chart ? choices(chart) : null, chart ? make("div", { id: "explored" }, figure(chart)) : make("p.muted", {}, "These runs have no throughput and speed to draw."),
      series(), front(), all()]);
  }
  function figure(chart) {
    return app.figure({ name: chart.name, title: chart.title, spec: app.recoded(chart.spec, { colour: state.colour || usual(chart), shape: state.shape, facet: state.facet }) }, true);
  }
  function usual(chart) { return (chart.spec.usermeta || {}).colour || "stack"; }
  function choices(chart) {
    var fields = (chart.spec.usermeta || {}).choices || {};
    function select(name, title, first) {
      var made = make("select", { id: "choose-" + name, onchange: function () { state[name] = made.value; write(); draw(); } },
        first === null ? null : make("option", { value: "" }, first), Object.entries(fields).map(function (pair) { return make("option", { value: pair[0], selected: state[name] === pair[0] }, pair[1]); }));
      return make("label", {}, title, made);
    }
    var which = make("select", { id: "choose-chart", onchange: function () { state.chart = which.value; write(); draw(); } }, answer.charts.map(function (entry) { return make("option", { value: entry.name, selected: entry === chart }, entry.title); }));
    return make("div.tools", {}, make("label", {}, "Chart", which), select("colour", "Colour", fields[usual(chart)] || "model · engine · hardware"), select("shape", "Shape", "none"), select("facet", "Facets", "none"));
  }
  function measure(names, row) { return names.map(function (name) { return row.values[name]; }).find(function (value) { return value !== undefined; }); }
  function stack(row) { return [row.about.model, row.about.engine, row.about.hardware].filter(Boolean).join(" · ") || "unknown"; }
  function traffic(row) { return [row.about.workload, row.about.load].filter(Boolean).join(" · "); }
  function best(rows, names, lowest) {
    var values = rows.map(function (row) { return measure(names, row); }).filter(function (value) { return value !== undefined; });
    return values.length ? (lowest ? Math.min : Math.max).apply(null, values) : undefined;
  }
  function highest(rows, name) {
    var values = rows.map(function (row) { return row[name]; }).filter(isNumber);
    return values.length ? Math.max.apply(null, values) : undefined;
  }
  function isNumber(value) { return typeof value === "number"; }
  function throughput() { return answer.throughput_title + ", input + output"; }
  function heads(names) { return names.map(function (text, at) { return make(at > 1 ? "th.wrap.right" : "th", {}, text); }); }
  function right(value, unit) { return make("td.right", {}, app.text.value(value, unit || "")); }
  function series() {
    var groups = new Map();
    answer.rows.forEach(function (row) { var key = stack(row) + "\n" + row.about.workload; if (!groups.has(key)) groups.set(key, []); groups.get(key).push(row); });
    var rows = Array.from(groups.values()).sort(function (a, b) { return (highest(b, "throughput") || 0) - (highest(a, "throughput") || 0); }).map(function (own) {
      return make("tr", {}, make("td.words", {}, stack(own[0])), make("td.words", {}, own[0].about.workload || "-"), right(own.length), right(highest(own, "throughput")), right(highest(own, "speed")),
        right(best(own, ["ttft_scheduled.p50", "ttft.p50"], true), "s"), right(best(own, ["cost_per_million_tokens"], true), "$"));
    });
    return make("section", {}, make("h2", {}, "Series"), app.table(heads(["Stack", "Workload", "Runs", "Best: " + throughput().toLowerCase().replace("gpu", "GPU"), "Best tok/s of one user", "Lowest TTFT p50", "Lowest cost of 1M tokens"]), rows, ".grid", "Series"));
  }
  /* Runs that are not beaten by another in both throughput and speed for a user. */
  function front() {
    var points = answer.rows.map(function (row) { return { row: row, x: row.speed, y: row.throughput }; }).filter(function (point) { return isNumber(point.x) && isNumber(point.y); });
    var kept = points.filter(function (one) { return !points.some(function (other) { return other.x >= one.x && other.y >= one.y && (other.x > one.x || other.y > one.y); }); }).sort(function (a, b) { return a.x - b.x; });
    if (points.length < 2) return null;
    var rows = kept.map(function (point) { return make("tr", {}, make("td.words", {}, app.link("run", { id: point.row.about.id }, stack(point.row))), make("td.words", {}, traffic(point.row)), right(point.y), right(point.x)); });
    return make("section", {}, make("h2", {}, "Pareto front"), app.table(heads(["Stack", "Workload · load", throughput(), "Tokens/s of one user"]), rows, ".grid", "Pareto front"));
  }
  function all() {
    var columns = answer.measures, scheduled = columns.some(function (entry) { return entry.key === "ttft_scheduled.p50"; });
    columns = columns.filter(function (entry) { return !DRAWN.includes(entry.key); });
    if (scheduled) columns = columns.filter(function (entry) { return !entry.key.startsWith("ttft."); });
    function line(row) {
      return make("tr", {}, make("td.words", {}, app.link("run", { id: row.about.id }, stack(row))), make("td.words", {}, traffic(row)),
        right(row.throughput), right(row.speed), columns.map(function (entry) { return right(measure(entry.key.startsWith("ttft_scheduled") ? [entry.key, entry.key.replace("_scheduled", "")] : [entry.key], row), entry.unit === "tokens/s" ? "" : entry.unit); }));
    }
    var titles = columns.map(function (entry) { return entry.title.replace("TTFT, scheduled", "TTFT"); });
    var part = make("section", {}, make("h2", {}, "Runs"), app.table(heads(["Stack", "Workload · load", throughput(), "Tokens/s of one user"].concat(titles)), answer.rows.slice(0, MOST_LISTED).map(line), ".grid", "Runs"));
    if (answer.rows.length > MOST_LISTED) part.append(make("button", { type: "button", onclick: function (event) { event.target.remove(); app.fill(part.querySelector("tbody"), answer.rows.slice(MOST_LISTED).map(line)); } }, "Show all " + answer.rows.length));
    return part;
  }
})();
