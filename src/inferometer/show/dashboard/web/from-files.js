/* The data source of the static site: script files next to the pages. Scripts instead of fetch, so that the site also
   works when it is opened from a disk. */
(function () {
  "use strict";
  var app = window.inferometer = window.inferometer || {};
  var known = {}, loading = {};
  app.put = function (name, content) { known[name] = content; };
  function gone(name, hint) { return Object.assign(new Error("there is no " + name + " here"), { hint: hint || "it may be newer than this page: reload the page" }); }
  function read(name, hint) {
    if (!loading[name]) {
      loading[name] = new Promise(function (done, failed) {
        var element = document.createElement("script");
        element.src = "data/" + name + ".js?" + Math.floor(Date.now() / 60000); /* a cache keeps it for a minute */
        element.onload = function () { if (name in known) done(known[name]); else failed(gone(name)); };
        element.onerror = function () { delete loading[name]; failed(gone(name, hint)); };
        document.head.append(element);
      });
    }
    return loading[name];
  }
  /* File names as Python writes them: ids that are not plain words are replaced by a checksum, as in the lists. */
  function file(id) { return String(id); }
  function isSafe(id) { return /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$/.test(id); }

  function rowsOf(chunk) {
    return chunk.rows.map(function (cells) {
      var run = { more: {}, values: {} };
      chunk.plain.forEach(function (name, at) { if (cells[at] !== null) run[name] = cells[at]; });
      chunk.numbers.forEach(function (key, at) { var value = cells[chunk.plain.length + at]; if (value !== null) run.values[key] = value; });
      run.more = run.values;
      return run;
    }).reverse();
  }
  function all(names, enough) {
    var result = [];
    return names.lists.reduce(function (before, list) {
      return before.then(function () { return result.length >= enough ? null : read(list.name).then(function (chunk) { result = result.concat(rowsOf(chunk)); }); });
    }, Promise.resolve()).then(function () { return result; });
  }

  /* `list --where` on the data that the site has of a run: columns, tags and headline numbers. */
  var SCALES = { ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, m: 60, h: 3600, d: 86400, "%": 0.01, k: 1e3, "/s": 1, "": 1 };
  function numeric(text) {
    var match = /^([-+]?[0-9.]+(?:e[-+]?\d+)?)\s*([a-zµ%/]*)$/i.exec(text.replace(/^['"]|['"]$/g, ""));
    return match && match[2] in SCALES ? Number((Number(match[1]) * SCALES[match[2]]).toPrecision(12)) : null; /* 102 * 1e-3 is not 0.102 */
  }
  function condition(text) {
    var match = /^\s*(.+?)\s*(=~|!~|!=|==|<=|>=|=|<|>)\s*(.*?)\s*$/.exec(text);
    if (!match) throw Object.assign(new Error("'" + text + "' is not a condition"), { hint: "write NAME OPERATOR VALUE, such as model=~llama or ttft.p99 < 500ms" });
    var name = match[1], key = name.toLowerCase().replace(".", " ").split(/\s+/).join("."), wanted = match[3], number = numeric(wanted);
    var operator = match[2] === "==" ? "=" : match[2];
    if (name.startsWith("plan.")) throw Object.assign(new Error(name + " cannot be filtered in a static site"), { hint: "inferometer list --where '" + text + "'" });
    return function (run) {
      var value = name === "tag" || name === "tags" ? (run.tags || []) : name in run ? run[name] : run.values[key];
      return holds(value, operator, wanted, number);
    };
  }
  function holds(value, operator, wanted, number) {
    if (Array.isArray(value)) {
      var positive = { "!=": "=", "!~": "=~" }[operator];
      var any = value.some(function (entry) { return holds(entry, positive || operator, wanted, number); });
      return positive ? !any : any;
    }
    if (operator === "=~") return value !== undefined && new RegExp(wanted, "i").test(value);
    if (operator === "!~") return value === undefined || !new RegExp(wanted, "i").test(value);
    if (typeof value === "number") {
      if (number === null) return false;
      var same = Math.abs(value - number) <= Math.abs(number) * 1e-4;
      return { "=": same, "!=": !same, "<": value < number, "<=": value <= number, ">": value > number, ">=": value >= number }[operator];
    }
    if (value === undefined) return operator === "!=";
    return { "=": value === wanted, "!=": value !== wanted, "<": value < wanted, "<=": value <= wanted, ">": value > wanted, ">=": value >= wanted }[operator];
  }
  function fits(run, words) {
    var text = Object.values(run).filter(function (entry) { return typeof entry === "string" || Array.isArray(entry); }).join(" ").toLowerCase();
    return words.every(function (word) { return text.includes(word); });
  }
  function sorted(runs, sort) {
    var falls = sort.startsWith("-"), name = falls ? sort.slice(1) : sort;
    function of(run) { return name in run ? run[name] : run.values[name]; }
    return runs.slice().sort(function (a, b) {
      var one = of(a), other = of(b);
      if (one === undefined || other === undefined) return one === other ? 0 : one === undefined ? 1 : -1;
      var order = one < other ? -1 : one > other ? 1 : 0;
      return falls ? -order : order;
    });
  }
  function runs(query) {
    var where, words = (query.search || "").toLowerCase().split(/\s+/).filter(Boolean), offset = query.offset || 0, limit = query.limit || 50;
    try { where = (query.where || []).map(condition); } catch (error) { return Promise.reject(error); }
    var cases = query.experiments !== "false" || (query.where || []).some(function (text) { return /^\s*(experiment|case|id)\b/.test(text); });
    var simple = !words.length && !where.length && !query.sort && cases;
    return read("names").then(function (names) {
      return all(names, simple ? offset + limit : Infinity).then(function (result) {
        var fitting = result.filter(function (run) { return fits(run, words) && where.every(function (holds) { return holds(run); }); });
        var own = cases ? fitting : fitting.filter(function (run) { return !run.experiment; });
        var ordered = query.sort ? sorted(own, query.sort) : own;
        return { total: simple ? names.total : ordered.length, offset: offset, runs: ordered.slice(offset, offset + limit), hidden: fitting.length - own.length };
      });
    });
  }
  function run(id) {
    if (!isSafe(file(id))) return Promise.reject(gone("run " + id, "choose one from the list of runs"));
    return read("runs/" + file(id), "choose one from the list of runs");
  }
  /* Comparisons of a run with the previous one were computed when the site was built; others need records, which a site
     does not have. */
  function compare(query) {
    return run(query.after).catch(function () { return {}; }).then(function (result) {
      return result.before && result.before === query.before ? read("compare/" + file(query.after)) : unjudged(query);
    });
  }
  function unjudged(query) {
    var before = query.before.split(","), ids = before.concat(query.after.split(","));
    return Promise.all(ids.map(run)).then(function (result) {
      var lines = new Map();
      result.forEach(function (entry, at) {
        entry.quantities.forEach(function (one) {
          if (!lines.has(one.key)) lines.set(one.key, { key: one.key, title: one.title, unit: one.unit, direction: one.direction, values: ids.map(function () { return null; }), weak: ids.map(function () { return false; }) });
          lines.get(one.key).values[at] = one.value;
          lines.get(one.key).weak[at] = Boolean(one.needed);
        });
      });
      var rows = result.map(function (entry) { return entry.about; });
      return { note: "Numbers side by side, without statistics. The site has statistics only for a run and the previous one (link on the page of the run). For these runs: inferometer compare " + query.before + " " + query.after,
        runs: { before: rows.slice(0, before.length), after: rows.slice(before.length) }, table: Array.from(lines.values()), charts: [] };
    });
  }
  app.data = {
    names: function () { return read("names", "was the folder copied completely?"); },
    overview: function () { return read("overview"); },
    /* Charts of all runs; rows of as many as fit. */
    explore: function (query) {
      if (!(query.where || []).length && !query.search) return read("explore");
      return Promise.all([read("explore"), runs({ where: query.where, search: query.search, limit: Infinity })]).then(function (both) {
        var fitting = new Set(both[1].runs.map(function (run) { return run.id; }));
        var rows = both[0].rows.filter(function (row) { return fitting.has(row.about.id); });
        var charts = both[0].charts.map(function (chart) { return Object.assign({}, chart, { spec: app.only(chart.spec, fitting) }); });
        return Object.assign({}, both[0], { rows: rows, charts: rows.length > 1 ? charts : [], total: rows.length, shown: rows.length });
      });
    },
    runs: runs,
    run: run,
    charts: function (id) {
      return run(id).then(function (result) {
        return result.drawn ? read("charts/" + file(id)) : { charts: [], absent: [], note: "The site has no charts of this run. Draw them: inferometer report " + id };
      });
    },
    file: function () { return ""; },
    compare: compare,
    histories: function () { return read("histories"); },
    history: function (family, measures) {
      return read("histories").then(function (result) {
        var one = result.histories.find(function (entry) { return entry.id === family; });
        var files = one.measures.filter(function (entry) { return measures.includes(entry.key); });
        return Promise.all(files.map(function (entry) { return read("history/" + family + "/" + entry.file); })).then(function (lines) { return { history: one, lines: lines }; });
      });
    },
    tradeOffs: function (family) { return read("history/" + family + "/trade-offs").catch(function () { return { charts: [] }; }); },
    experiments: function () { return read("experiments"); },
    experiment: function (id) { return isSafe(file(id)) ? read("experiments/" + file(id)) : Promise.reject(gone("experiment " + id)); }
  };
})();
