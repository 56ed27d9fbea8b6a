/* Numbers as people read them: the same text for the same value as `vocabulary/formats.py`, which a test compares. */
(function () {
  "use strict";
  var app = globalThis.inferometer = globalThis.inferometer || {};
  var COUNTED = ["", "tokens", "requests", "turns", "count"], RATE_UNITS = {"1/s": "req/s", "tokens/s": "tok/s"};
  var SIZES = [["TiB", Math.pow(2, 40)], ["GiB", Math.pow(2, 30)], ["MiB", Math.pow(2, 20)], ["KiB", 1024]];

  function fixed(value, digits) {
    var text = Math.abs(value) >= 1e21 ? BigInt(value).toString() : (value + 0).toFixed(digits), parts = text.split(".");
    parts[0] = parts[0].replace(/\B(?=(\d{3})+$)/g, ",");
    return parts.join(".");
  }
  function isMissing(value) { return value === null || value === undefined || Number.isNaN(value); }
  function three(value) {
    var size = Math.abs(value);
    if (size >= 99.95 || Number.isInteger(value)) return fixed(value, 0);
    if (size < 0.9995) return String(Number(value.toPrecision(3)));
    return fixed(value, size >= 9.995 ? 1 : 2);
  }
  function number(value) {
    if (isMissing(value)) return "-";
    return Number.isFinite(value) ? three(value) : value > 0 ? "∞" : "-∞";
  }
  function percent(share) {
    if (isMissing(share) || !Number.isFinite(share)) return number(share);
    var value = Number((100 * share).toPrecision(12)), size = Math.abs(value);
    if (Number.isInteger(value)) return String(value + 0) + "%";
    if (size < 0.1) return three(value) + "%";
    if (size > 99.9 && size < 100) return fixed(value, 1 - Number((100 - size).toExponential(2).split("e")[1])).replace(/0+$/, "") + "%";
    return fixed(value, 1) + "%";
  }
  function two(count) { return (count < 10 ? "0" : "") + count; }
  function duration(value) {
    if (isMissing(value) || !Number.isFinite(value)) return number(value);
    var size = Math.abs(value), sign = value < 0 ? "-" : "", whole;
    if (size === 0) return "0 s";
    if (size < 0.9995e-3) return three(value * 1e6) + " µs";
    if (size < 0.9995) return three(value * 1e3) + " ms";
    if (size < 119.5) return three(value) + " s";
    whole = Math.floor((size < 7199.5 ? size : size / 60) + 0.5);
    return sign + Math.floor(whole / 60) + (size < 7199.5 ? "m " : "h ") + two(whole % 60) + (size < 7199.5 ? "s" : "m");
  }
  function size(value) {
    if (isMissing(value) || !Number.isFinite(value)) return number(value);
    var unit = SIZES.find(function (pair) { return Math.abs(value) >= 0.9 * pair[1]; });
    return unit ? three(value / unit[1]) + " " + unit[0] : three(value) + " B";
  }
  function value(amount, unit) {
    if (isMissing(amount)) return "-";
    if (typeof amount !== "number") return String(amount);
    if (unit === "s") return duration(amount);
    if (unit === "share") return percent(amount);
    if (unit === "bytes") return size(amount);
    if (unit === "bytes/s") return size(amount) + "/s";
    if (unit === "/s") return number(amount) + "/s";
    if (unit === "$") return (amount < 0 ? "-" : "") + "$" + number(Math.abs(amount));
    return number(amount) + (COUNTED.includes(unit || "") ? "" : " " + (RATE_UNITS[unit] || unit));
  }
  function changePercent(share) {
    var amount = 100 * share;
    return fixed(amount, amount >= 99.5 || amount === 0 ? 0 : amount >= 0.95 ? 1 : 2);
  }
  function change(by, relative, unit) {
    var sign = by > 0 ? "+" : by < 0 ? "−" : "±";
    if (relative && by > 9.995) return "×" + number(1 + by);
    if (relative) return sign + changePercent(Math.abs(by)) + "%";
    return sign + (unit === "share" ? changePercent(Math.abs(by)) + " pt" : value(Math.abs(by), unit));
  }
  var NUMBER_AND_UNIT = /^([^0-9]?[0-9][0-9.,]*(?:e-[0-9]+)?)(\D*)$/;
  function span(low, high) {
    var first = NUMBER_AND_UNIT.exec(low), last = NUMBER_AND_UNIT.exec(high);
    return (first && last && first[2] === last[2] ? first[1] : low) + ".." + high;
  }
  function interval(low, high, unit) {
    if (isMissing(low) || isMissing(high)) return isMissing(low) && isMissing(high) ? "" : isMissing(high) ? "≥" + value(low, unit) : "≤" + value(high, unit);
    return span(value(low, unit), value(high, unit));
  }
  app.text = { number: number, percent: percent, duration: duration, size: size, value: value, change: change, interval: interval };
})();
