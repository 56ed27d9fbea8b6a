/* Draws each figure.chart when it comes near the visible part of the page, and again when its size or the theme changes.
   Every chart reacts: a crosshair with all values, drag to zoom and double click to reset, pictures, CSV, a table. */
(function () {
  "use strict";
  var SIDES = 96; /* axis labels next to a plot of several panels, which cannot size themselves */
  var BESIDE = 70, LETTER = 6.6, SYMBOL = 30; /* of a legend: the axis next to it, a letter, the space around a name */
  var MOST_ROWS = 500, FEWEST_PIXELS = 8;
  var themes = JSON.parse(document.getElementById("chart-themes").textContent);
  var drawn = new Map();

  function element(kind, attributes) {
    var made = document.createElement(kind);
    Object.entries(attributes || {}).forEach(function (pair) { made.setAttribute(pair[0], pair[1]); });
    Array.prototype.slice.call(arguments, 2).forEach(function (child) { made.append(child); });
    return made;
  }

  /* -- specifications ---------------------------------------------------------------------------------------------- */

  function specOf(figure) { return JSON.parse(figure.querySelector("script[type='application/json']").textContent); }
  function layersOf(part) { return part.layer || (part.mark ? [part] : []); }
  function panelsOf(spec) { return spec.vconcat || spec.hconcat || [spec]; }
  function isLine(layer) { var mark = layer.mark && (layer.mark.type || layer.mark); return mark === "line" || mark === "area"; }
  function isContinuous(channel) { return channel && channel.field && (channel.type === "quantitative" || channel.type === "temporal"); }
  /* The lines of a panel for the crosshair: their fields, and the field that distinguishes them. */
  function readable(panel) {
    var layer = layersOf(panel).find(function (member) { return isLine(member) && member.encoding && isContinuous(member.encoding.x) && member.encoding.y && member.encoding.y.field; });
    if (!layer || layer.encoding.order) return null; /* points joined by load are not a function of x */
    var rows = ((layer.data || panel.data || {}).values || []).filter(function (row) { return row && !row.invalid && row[layer.encoding.x.field] !== null; });
    var colour = layer.encoding.color && layer.encoding.color.field;
    return { x: layer.encoding.x, y: layer.encoding.y, colour: colour, rows: rows, names: colour && layer.encoding.color.scale ? layer.encoding.color.scale.domain : null };
  }
  function fitted(spec, width, zoom) {
    var copy = JSON.parse(JSON.stringify(spec));
    delete copy.title; /* the caption shows it, and wraps */
    delete copy.usermeta;
    if (copy.vconcat) {
      copy.vconcat.forEach(function (view) { view.width = Math.max(160, width - SIDES); });
    } else if (copy.facet) {
      copy.spec.width = Math.max(160, (width - SIDES) / Math.min(copy.columns || 1, Math.max(1, Math.floor(width / 320))) - 40);
      copy.columns = Math.min(copy.columns || 1, Math.max(1, Math.floor(width / 320)));
    } else {
      copy.width = "container";
      copy.autosize = { type: "fit-x", contains: "padding" };
      copy.padding = { left: 5, top: 5, bottom: 5, right: 20 }; /* half a label at the end of the axis */
    }
    if (zoom) panelsOf(copy).forEach(function (panel) { zoomed(panel, zoom); });
    legends(copy, width - BESIDE);
    if (width < 480 && copy.config === undefined) copy.config = { axis: { labelFontSize: 10 } };
    return copy;
  }
  /* A scale of numbers gets a new domain; on a time axis, points outside are removed. */
  function zoomed(panel, zoom) {
    var fields = layersOf(panel).map(function (layer) { return layer.encoding && layer.encoding.x; }).filter(isContinuous);
    if (!fields.length) return;
    fields.forEach(function (x) { if (x.type !== "temporal") x.scale = Object.assign({}, x.scale, { domain: zoom, zero: false, nice: false }); });
    layersOf(panel).forEach(function (layer) {
      if (layer.mark) layer.mark = Object.assign({}, typeof layer.mark === "string" ? { type: layer.mark } : layer.mark, { clip: true });
    });
    if (fields[0].type !== "temporal") return;
    var name = fields[0].field;
    function inside(row) { var at = new Date(row[name]).getTime(); return !(name in row) || (at >= zoom[0] && at <= zoom[1]); }
    [panel].concat(panel.layer || []).forEach(function (part) { if (part.data && Array.isArray(part.data.values)) part.data.values = part.data.values.filter(inside); });
    if (panel.layer) panel.layer = panel.layer.filter(function (layer) { return !layer.data || layer.data.values.length; });
  }
  /* As many names next to each other as fit: a legend is cut off instead of wrapped. */
  function legends(part, width) {
    if (!part || typeof part !== "object") return;
    var colour = part.encoding && part.encoding.color;
    if (colour && colour.legend && colour.legend.columns) {
      var names = colour.legend.values || colour.scale.domain;
      var widest = Math.max.apply(null, names.map(function (name) { return String(name).length; })) * LETTER;
      colour.legend.labelLimit = Math.max(80, Math.min(420, width - SYMBOL));
      colour.legend.columns = Math.max(1, Math.floor(width / (Math.min(widest, colour.legend.labelLimit) + SYMBOL)));
    }
    (part.layer || part.vconcat || []).forEach(function (inner) { legends(inner, width); });
    if (part.spec) legends(part.spec, width);
  }

  /* A chart with a crosshair shows no tooltips, and Vega would write one for every point before it draws. */
  function withoutTooltips(part) {
    if (part.encoding) delete part.encoding.tooltip;
    (part.layer || part.vconcat || part.hconcat || []).forEach(withoutTooltips);
    if (part.spec) withoutTooltips(part.spec);
    return part;
  }

  /* -- drawing ----------------------------------------------------------------------------------------------------- */

  function draw(figure) {
    var plot = figure.querySelector(".plot"), width = plot.clientWidth, before = drawn.get(figure) || {};
    var spec = specOf(figure), lines = panelsOf(spec).map(readable), hasLines = lines.some(Boolean);
    var options = { /* the plot has a label, and its marks are hidden from screen readers */
      actions: false, renderer: "svg", ast: true, config: Object.assign({ aria: false }, themes[window.inferometerTheme.current()]), mode: "vega-lite",
      tooltip: !hasLines
    };
    drawn.set(figure, Object.assign({}, before, { width: width }));
    var shown = fitted(spec, width, before.zoom);
    return vegaEmbed(plot, hasLines ? withoutTooltips(shown) : shown, options).then(function (result) {
      if (before.view) before.view.finalize();
      drawn.set(figure, { width: width, view: result.view, zoom: before.zoom });
      figure.dataset.drawn = "yes";
      describe(figure, plot);
      thin(plot);
      tools(figure);
      react(figure, result.view, lines);
    }).catch(function (error) {
      plot.textContent = "This chart could not be drawn: " + error.message;
    });
  }
  /* Screen readers get the caption instead of the descriptions by Vega. */
  function describe(figure, plot) {
    var caption = figure.querySelector("figcaption"), svg = plot.querySelector("svg");
    plot.setAttribute("aria-label", caption.textContent);
    if (svg) svg.setAttribute("aria-hidden", "true");
  }
  /* Labels next to points: labels that would overlap are hidden. */
  function thin(plot) {
    var kept = [];
    plot.querySelectorAll(".labels_marks text").forEach(function (label) {
      var box = label.getBoundingClientRect(), edge = plot.getBoundingClientRect();
      var covered = box.right > edge.right || kept.some(function (other) { return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom; });
      if (covered) label.style.display = "none"; else kept.push(box);
    });
  }

  /* -- reacting ---------------------------------------------------------------------------------------------------- */

  function groups(view, lines) {
    var root = view.scenegraph().root.items[0], inner = root.items.flatMap(function (mark) { return mark.marktype === "group" ? mark.items : []; });
    var panels = inner.filter(function (item) { return item.mark && /concat_\d+_group/.test(item.mark.name || ""); });
    if (!panels.length) return [{ x: root.x || 0, y: root.y || 0, width: root.width, height: root.height, line: lines[0], scale: named(view, "x") }];
    return panels.map(function (item, at) {
      return { x: (root.x || 0) + item.x, y: (root.y || 0) + item.y, width: item.width, height: item.height, line: lines[at], scale: named(view, "concat_" + at + "_x") };
    });
  }
  function named(view, name) { try { return view.scale(name); } catch (_) { return null; } }
  function react(figure, view, lines) {
    var plot = figure.querySelector(".plot"), svg = plot.querySelector("svg");
    if (!svg) return;
    var panels = groups(view, lines), origin = view.origin();
    var cross = element("div", { class: "cross", hidden: "" }), brush = element("div", { class: "brush", hidden: "" }), box = element("div", { class: "values", hidden: "", role: "status" });
    plot.querySelectorAll(".cross, .brush, .values").forEach(function (old) { old.remove(); });
    plot.append(cross, brush, box);
    var start = null;
    function place(event) {
      var area = svg.getBoundingClientRect(), left = event.clientX - area.left - origin[0], top = event.clientY - area.top - origin[1];
      var panel = panels.find(function (member) { return left >= member.x - 2 && left <= member.x + member.width + 2 && top >= member.y - 2 && top <= member.y + member.height + 2; });
      return panel ? { panel: panel, at: Math.max(0, Math.min(panel.width, left - panel.x)), left: event.clientX - plot.getBoundingClientRect().left + plot.scrollLeft, area: area } : null;
    }
    function hide() { cross.hidden = box.hidden = true; }
    function height(panel) { return panel.height + "px"; }
    function top(panel) { var area = svg.getBoundingClientRect(); return area.top - plot.getBoundingClientRect().top + origin[1] + panel.y + "px"; }
    plot.onpointermove = function (event) {
      var now = place(event);
      if (!now) { if (!start) hide(); return; }
      if (start) { stretch(now); return; }
      if (!now.panel.line || !now.panel.scale || !now.panel.scale.invert) { hide(); return; }
      show(now);
    };
    plot.onpointerleave = function () { hide(); };
    function show(now) {
      var readings = values(now.panel.line, now.panel.scale, now.at);
      if (!readings.length) { hide(); return; }
      cross.hidden = box.hidden = false;
      Object.assign(cross.style, { left: now.left + "px", top: top(now.panel), height: height(now.panel) });
      box.replaceChildren.apply(box, [element("b", {}, across(now.panel.line, now.panel.scale.invert(now.at)))].concat(readings.map(function (member) {
        return element("div", {}, member.name ? member.name + ": " : "", element("span", {}, member.text));
      })));
      var room = plot.clientWidth - now.left, wide = box.offsetWidth;
      Object.assign(box.style, { left: (room < wide + 20 ? Math.max(0, now.left - wide - 12) : now.left + 12) + "px", top: top(now.panel) });
    }
    /* Drag to zoom; a drag of a few pixels is a click. */
    plot.onpointerdown = function (event) {
      var now = place(event);
      start = event.button === 0 && now && now.panel.scale && now.panel.scale.invert ? now : null;
    };
    function stretch(now) {
      hide();
      var left = Math.min(start.left, now.left), wide = Math.abs(now.left - start.left);
      brush.hidden = wide < FEWEST_PIXELS;
      Object.assign(brush.style, { left: left + "px", width: wide + "px", top: top(start.panel), height: height(start.panel) });
    }
    plot.onpointerup = function (event) {
      var now = place(event), from = start;
      start = null;
      brush.hidden = true;
      if (!from || !now || now.panel !== from.panel || Math.abs(now.at - from.at) < FEWEST_PIXELS) return;
      var ends = [from.at, now.at].sort(function (a, b) { return a - b; }).map(function (at) { return Number(from.panel.scale.invert(at)); });
      zoom(figure, ends);
    };
    plot.ondblclick = function () { zoom(figure, null); };
    view.addEventListener("click", function (_event, item) {
      var run = item && item.datum && item.datum.run;
      if (run && window.inferometerOpenRun) window.inferometerOpenRun(String(run));
    });
  }
  function zoom(figure, ends) {
    var state = drawn.get(figure) || {};
    state.zoom = ends;
    drawn.set(figure, state);
    figure.classList.toggle("zoomed", Boolean(ends));
    draw(figure);
  }
  function position(line, row) { var value = row[line.x.field]; return line.x.type === "temporal" ? new Date(value).getTime() : Number(value); }
  /* For every line, the point that is nearest in x. */
  function values(line, scale, at) {
    var wanted = Number(scale.invert(at)), nearest = new Map();
    line.rows.forEach(function (row) {
      var name = line.colour ? String(row[line.colour]) : "", away = Math.abs(position(line, row) - wanted), known = nearest.get(name);
      if (!known || away < known.away) nearest.set(name, { away: away, row: row });
    });
    var order = line.names || Array.from(nearest.keys());
    return order.map(String).filter(function (name) { return nearest.has(name); }).map(function (name) {
      var row = nearest.get(name).row;
      var text = line.y.axis && line.y.axis.format === "%" ? percent(row[line.y.field]) : number(row[line.y.field]);
      return { name: name, text: text + (row.came_with ? " (" + row.came_with + ")" : "") };
    });
  }
  function across(line, value) { return line.x.type === "temporal" ? when(value) : number(Number(value)) + " " + (line.x.title || "").replace(/^.*\(|\).*$/g, ""); }
  function two(count) { return (count < 10 ? "0" : "") + count; }
  function when(value) {
    var date = new Date(value);
    return date.getFullYear() + "-" + two(date.getMonth() + 1) + "-" + two(date.getDate()) + " " + two(date.getHours()) + ":" + two(date.getMinutes());
  }
  function number(value) {
    var size = Math.abs(value);
    if (value === null || value === undefined || Number.isNaN(value)) return "-";
    if (size >= 99.95 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
    return size < 0.9995 ? String(Number(value.toPrecision(3))) : value.toFixed(size >= 9.995 ? 1 : 2);
  }
  function percent(value) { return Number((100 * value).toPrecision(4)) + "%"; }

  /* -- pictures and tables ----------------------------------------------------------------------------------------- */

  function tools(figure) {
    if (figure.querySelector(".chart-tools")) return;
    var bar = element("div", { class: "chart-tools", role: "group", "aria-label": "Chart: save or show as table" });
    function button(text, title, act) {
      var made = element("button", { type: "button", title: title, "aria-label": title }, text);
      made.addEventListener("click", act);
      bar.append(made);
      return made;
    }
    button("PNG", "Save as PNG", function () { picture(figure, "png"); });
    button("SVG", "Save as SVG", function () { picture(figure, "svg"); });
    button("CSV", "Save data as CSV", function () { save(figure, "csv", new Blob([csv(rowsOf(specOf(figure)))], { type: "text/csv" })); });
    var toggle = button("Table", "Show data as table", function () {
      var old = figure.querySelector(".chart-table");
      if (old) old.remove(); else figure.append(table(rowsOf(specOf(figure))));
      toggle.setAttribute("aria-pressed", String(!old));
    });
    button("Reset", "Reset zoom", function () { zoom(figure, null); }).className = "reset";
    figure.querySelector("figcaption").after(bar);
  }
  /* All data of a specification, from all its places, without the marks and labels derived from it. */
  function rowsOf(spec) {
    var all = [];
    function collect(part) {
      if (part && part.data && Array.isArray(part.data.values)) all.push(part.data.values);
      (part.vconcat || part.hconcat || []).forEach(collect);
      if (part.spec) collect(part.spec);
      if (part.layer && !(part.data && part.data.values && part.data.values.length)) part.layer.forEach(collect);
    }
    collect(spec);
    return all.flat().filter(function (row) { return row && typeof row === "object"; });
  }
  function columnsOf(rows) { return Array.from(new Set(rows.flatMap(function (row) { return Object.keys(row); }))); }
  function csv(rows) {
    var columns = columnsOf(rows);
    function cell(value) {
      var text = value === null || value === undefined ? "" : String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text; /* a spreadsheet must not read it as a formula */
      return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    }
    return [columns].concat(rows.map(function (row) { return columns.map(function (name) { return row[name]; }); })).map(function (line) { return line.map(cell).join(","); }).join("\n") + "\n";
  }
  function table(rows) {
    var columns = columnsOf(rows), shown = rows.slice(0, MOST_ROWS);
    var head = element("tr", {});
    columns.forEach(function (name) { head.append(element("th", { scope: "col" }, name.replace(/_/g, " "))); });
    var body = element("tbody", {});
    shown.forEach(function (row) {
      var line = element("tr", {});
      columns.forEach(function (name) { var value = row[name]; line.append(element("td", {}, typeof value === "number" ? number(value) : value === null || value === undefined ? "-" : String(value))); });
      body.append(line);
    });
    var note = rows.length > shown.length ? "The first " + shown.length + " of " + rows.length + " rows; CSV has all." : "";
    return element("div", { class: "chart-table scroll", tabindex: "0", role: "region", "aria-label": "Data of the chart" }, element("table", {}, element("thead", {}, head), body), note);
  }
  function picture(figure, kind) {
    var view = (drawn.get(figure) || {}).view;
    if (!view) return;
    view.toImageURL(kind, kind === "png" ? 2 : 1).then(function (address) { download(figure, kind, address); });
  }
  function save(figure, kind, blob) {
    var address = URL.createObjectURL(blob);
    download(figure, kind, address);
    setTimeout(function () { URL.revokeObjectURL(address); }, 1000);
  }
  function download(figure, kind, address) {
    var link = element("a", { href: address, download: (figure.id.replace(/^chart-/, "") || "chart") + "." + kind });
    document.body.append(link);
    link.click();
    link.remove();
  }

  /* -- when -------------------------------------------------------------------------------------------------------- */

  function all() { return Array.prototype.slice.call(document.querySelectorAll("figure.chart")); }
  function again() { drawn.forEach(function (_, figure) { if (figure.isConnected) draw(figure); else drawn.delete(figure); }); }

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
        if (figure.isConnected && Math.abs(state.width - figure.querySelector(".plot").clientWidth) > 8) draw(figure);
      });
    }, 150);
  });
  window.inferometerCharts = { draw: draw, all: all, zoom: zoom };
})();
