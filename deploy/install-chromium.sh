#!/bin/sh
# The browser that tests/browser drives: the one that is there, else Debian's or Ubuntu's package. Without one those
# tests are skipped and say so; all others run.
set -eu
for name in "${INFEROMETER_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable chrome; do
    if [ -n "$name" ] && command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core"
    $install || { apt-get update -q && $install; } && exit 0
fi
echo "note: no Chromium, so the tests of the pages (tests/browser) will be skipped" >&2
echo "hint: sudo apt-get install chromium, or INFEROMETER_CHROMIUM=/path/to/chrome" >&2
