/* A run: verdict first, then its numbers, charts, plan, environment and files. A run in progress is updated. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, AGAIN_MS = 2000;

  app.views.run = function () {
    var id = app.query().get("id");
    if (!id) return Promise.resolve(app.show(make("h1", {}, "Run"), app.failed({ message: "no run in the address", hint: "choose one from the list of runs" })));
    app.soon();
    var charts = app.data.charts(id); /* of a run in progress they are polled */
    charts.catch(function () { /* shown in place of the charts */ });
    return app.data.run(id).then(function (content) { draw(content, charts); });
  };
  function draw(content, made) {
    var run = content.run;
    document.title = app.line(content.about) + " · Inferometer";
    var live = make("div", { id: "live" }), numbers = make("div", { id: "numbers" }), charts = make("div", { id: "charts" }, make("p.muted", {}, "Drawing…"));
    app.show(
      make("header.top", {}, make("div", {}, app.header(content.about, run.state === "complete" ? null : [" ", app.word(run.state)]),
        make("p.muted.small", {}, [run.kind === "serving" ? null : run.kind_means, run.source && "imported from " + run.source].filter(Boolean).join(" · "))),
        actions(content)),
      live, numbers,
      make("section", {}, make("h2", {}, "Charts"), charts),
      make("section", {}, make("h2", {}, "All numbers"), everything(content)),
      make("section", {}, make("h2", {}, "Plan"), run.source || run.kind === "benchmark" ? null : make("p", {}, "Repeat: ", make("code", {}, "inferometer rerun " + run.id)),
        make("details", {}, make("summary", {}, "As it was run"), make("pre", { tabindex: "0" }, yaml(content.plan)))),
      make("section", {}, make("h2", {}, "Environment"), make("details", {}, make("summary", {}, "Machine, versions, target"), make("pre", { tabindex: "0" }, yaml(content.environment)))),
      files(content), changes(content));
    if (run.state === "partial" && app.names.live) { follow(run.id, live, numbers, charts); return; }
    numbers.replaceChildren(judged(content));
    drawCharts(run.id, charts, null, made);
  }
  function actions(content) {
    var tags = (content.marks.tags || []).map(function (tag) { return app.link("runs", { where: "tag=" + tag }, tag, { class: "word" }); });
    var names = (content.marks.baselines || []).map(function (name) { return make("span.word", {}, "baseline " + name); });
    return make("div.chips", {}, names, tags,
      content.marks.experiment ? app.link("experiment", { id: content.marks.experiment }, "its experiment") : null,
      content.before ? app.link("compare", { before: content.before, after: content.run.id }, "compare with the previous run") : null,
      app.link("compare", { after: content.run.id }, "compare"));
  }
  function judged(content, going) {
    var verdict = content.verdict || { status: null, doubts: [] };
    var shownStatus = going ? "in progress" : verdict.status;
    var reasons = verdict.doubts.filter(function (entry) { return !going || entry.code !== "interrupted"; }).map(function (entry) { return make("li", {}, entry.text + (entry.remedy ? " " + entry.remedy.charAt(0).toUpperCase() + entry.remedy.slice(1) + "." : "")); });
    var numbers = {};
    content.quantities.forEach(function (entry) { numbers[entry.key] = entry; });
    var tiles = content.headline.map(function (key) { return tile(numbers[key]); });
    var limits = (content.limits || []).map(function (limit) {
      var kept = limit.met === true ? ["good", "met"] : limit.met === false ? ["bad", "not met"] : ["doubt", "unclear"];
      return make("tr", {}, make("td", {}, [limit.traffic, limit.limit].filter(Boolean).join(": ")), make("td", {}, make("span.word." + kept[0], {}, kept[1])), make("td.words", {}, limitText(limit)));
    });
    var outcomes = Object.entries(content.outcomes).map(function (pair) { return app.text.number(pair[1]) + " " + pair[0]; }).join(", ");
    return make("div", {}, make("div.verdict" + (app.style(shownStatus) ? "." + app.style(shownStatus) : ""), {},
      make("b", {}, shownStatus || content.run.state), going && reasons.length ? make("p.muted", {}, "Doubts, if the run ended now:") : null, reasons.length ? make("ul", {}, reasons) : make("p", {}, shownStatus ? "No problems were found with this measurement" + (going ? " so far." : ".") : content.run.state_means)),
    content.run.older_rules ? make("p.muted", {}, "These numbers and this verdict were computed by an older version. Recompute them with the current rules: ", make("code", {}, "inferometer store remeasure " + content.run.id)) : null,
    limits.length ? app.table(["limit", "", "measured"].map(function (text) { return make("th", {}, text); }), limits, ".grid.limits", "Limits") : null,
    tiles.length ? make("div.tiles", {}, tiles) : null, outcomes ? make("p.muted", {}, "Requests: " + outcomes) : null);
  }
  /* `ttft p90 < 300ms: met, TTFT p90 is 92.5 ms` without the parts that other cells show. */
  function limitText(limit) {
    var text = limit.text || "";
    if (text.startsWith(limit.limit + ": ")) text = text.slice(limit.limit.length + 2);
    return text.replace(/^(met|not met|unclear), /, "");
  }
  function spread(entry) {
    return app.text.interval(entry.low, entry.high, entry.unit);
  }
  function tile(entry) {
    var weak = entry.needed !== null && entry.needed !== undefined;
    return make("div.tile", { "data-key": entry.key }, make("div.name", {}, entry.title), make("div.value", {}, (weak ? "~" : "") + app.text.value(entry.value, entry.unit)),
      make("div.spread", {}, [spread(entry), weak ? app.text.number(entry.needed) + " samples needed" : null].filter(Boolean).join(", ")));
  }
  function everything(content) {
    if (!content.quantities.length) return make("p.muted", {}, "No numbers yet.");
    var heads = ["measure", "value", "interval", "name"].map(function (text, at) { return make("th" + (at === 1 ? ".right" : ""), {}, text); });
    var rows = content.quantities.map(function (entry) {
      return make("tr", {}, make("td", {}, entry.title), make("td.right", {}, (entry.needed ? "~" : "") + app.text.value(entry.value, entry.unit)), make("td.muted", {}, spread(entry)), make("td", {}, make("code", {}, entry.key)));
    });
    return make("details", {}, make("summary", {}, rows.length + " numbers"), app.table(heads, rows));
  }
  function files(content) {
    if (!content.files || !content.files.length) return null;
    var shown = make("pre.file", { hidden: true, tabindex: "0", "aria-label": "File content" });
    var links = content.files.map(function (file) {
      var address = app.data.file(content.run.id, file.name);
      return make("li", {}, make("a", { href: address, onclick: function (event) {
        event.preventDefault();
        fetch(address).then(function (answer) { return answer.text(); }).then(function (text) { shown.hidden = false; shown.textContent = text || "(empty)"; shown.scrollIntoView({ block: "nearest" }); });
      } }, file.name), make("span.muted", {}, " " + app.text.size(file.bytes)));
    });
    return make("section", {}, make("h2", {}, "Files"), make("ul", {}, links), shown);
  }
  function drawCharts(id, place, first, made) {
    return (made || app.data.charts(id)).then(function (content) {
      if (first) content.charts.sort(function (a, b) { return rankIn(first, a) - rankIn(first, b); });
      var known = new Map(Array.from(place.querySelectorAll("figure")).map(function (figure) { return [figure.id, figure]; }));
      var same = content.charts.length && content.charts.every(function (chart) { return known.has("chart-" + chart.name); });
      if (same) content.charts.forEach(function (chart) { app.redraw(known.get("chart-" + chart.name), chart.spec); });
      else place.replaceChildren.apply(place, app.charts(content).filter(Boolean));
      if (!place.childNodes.length) place.append(make("p.muted", {}, "There are no charts."));
    }).catch(function (error) { if (!error.gone) place.replaceChildren(app.failed(error)); });
  }
  function rankIn(first, chart) { var at = first.indexOf(chart.name); return at < 0 ? first.length : at; }
  /* Polls every two seconds, also through a restart of the server. When the run is over, the whole page is redrawn. */
  function follow(id, live, numbers, charts) {
    var seen = -1; /* bytes of logs; while they are empty, a note is shown in place of the charts */
    function again() {
      app.data.live(id).then(function (now) {
        if (now.run.run.state !== "partial") { app.views.run(); return; }
        document.querySelector("h1 .word").replaceWith(app.word(now.running ? "running" : "partial"));
        live.replaceChildren(progress(now));
        numbers.replaceChildren(judged(now.run, now.running));
        if (now.log_bytes !== seen) { seen = now.log_bytes; drawCharts(id, charts, FIRST_LIVE); }
        setTimeout(again, now.running ? AGAIN_MS : 5 * AGAIN_MS);
      }).catch(function (error) {
        if (error.gone) setTimeout(again, AGAIN_MS); else live.replaceChildren(app.failed(error));
      });
    }
    again();
  }
  /* Progress, remaining time, and whether the requests are sent at the planned rate. */
  function progress(now) {
    if (!now.running) return stopped(now);
    var share = now.planned_s && now.elapsed_s !== null ? Math.min(1, now.elapsed_s / now.planned_s) : now.planned ? Math.min(1, now.done / now.planned) : null;
    var left = now.planned_s && now.elapsed_s !== null ? Math.max(0, now.planned_s - now.elapsed_s) : share ? now.elapsed_s * (1 - share) / share : null;
    var facts = [now.elapsed_s === null ? null : "elapsed " + app.text.duration(Math.round(now.elapsed_s)), left === null || left === undefined ? null : left > 0 ? "about " + app.text.duration(Math.round(left)) + " left" : "waiting for the last answers",
      app.text.number(now.done) + (now.planned ? " of " + app.text.number(now.planned) : "") + " requests done",
      now.rate_sent === null ? null : app.text.number(now.rate_sent) + " req/s sent" + (now.rate_planned ? ", " + app.text.number(now.rate_planned) + " planned" : ""),
      now.too_large ? "the logs are too large to be read during the run" : null];
    return make("div", { role: "status" }, share === null ? null : make("progress", { max: 1, value: share, "aria-label": "Progress" }, app.text.percent(share)), make("p", {}, facts.filter(Boolean).join(" · ")));
  }
  /* A run that no longer writes was killed or waits: which one is not known. */
  function stopped(now) {
    return make("div", { role: "status" }, make("p", {}, "Nothing was written for " + app.text.duration(Math.round(now.quiet_s || 0)) + ": the run was killed, or it waits. " + app.text.number(now.done) + " requests were done. ",
      make("code", {}, "inferometer show " + now.run.run.id + " --partial")));
  }
  var FIRST_LIVE = ["latency_over_time", "in_flight", "tokens_over_time"];
  function changes(content) {
    if (!app.names.write) return null;
    var id = content.run.id, tag = make("input", { type: "text", placeholder: "nightly" }), baseline = make("input", { type: "text", placeholder: "main" });
    var notice = make("p", { role: "status" });
    function done(promise) { promise.then(function () { app.views.run(); }).catch(function (error) { notice.replaceChildren(app.failed(error)); }); }
    function form(label, input, text, send) {
      return make("form.tools", { onsubmit: function (event) { event.preventDefault(); if (input.value.trim()) done(send(input.value.trim())); } }, make("label", {}, label, input), make("button", { type: "submit" }, text));
    }
    return make("section", {}, make("h2", {}, "Edit"), notice,
      form("Tag", tag, "Add tag", function (name) { return app.data.change("POST", "runs/" + id + "/tags", { tags: [name] }); }),
      form("Baseline", baseline, "Set as baseline", function (name) { return app.data.change("PUT", "baselines/" + encodeURIComponent(name), { run: id }); }),
      make("button", { type: "button", onclick: function () {
        if (window.confirm("Delete " + id + " with all its files?")) app.data.change("DELETE", "runs/" + id).then(function () { location.href = "runs.html"; }).catch(function (error) { notice.replaceChildren(app.failed(error)); });
      } }, "Delete this run"));
  }
  /* Plain data as indented lines: for reading, not for parsing. */
  function yaml(value, indent) {
    var space = "  ".repeat(indent || 0);
    if (value === null || typeof value !== "object") return space + String(value);
    var entries = Object.entries(value);
    if (!entries.length) return space + (Array.isArray(value) ? "[]" : "{}");
    return entries.map(function (pair) {
      var name = Array.isArray(value) ? "-" : pair[0] + ":", inner = pair[1];
      if (inner !== null && typeof inner === "object" && Object.keys(inner).length) return space + name + "\n" + yaml(inner, (indent || 0) + 1);
      return space + name + " " + (inner !== null && typeof inner === "object" ? (Array.isArray(inner) ? "[]" : "{}") : String(inner));
    }).join("\n");
  }
  app.yaml = yaml;
})();
