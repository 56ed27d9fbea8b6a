#!/bin/sh
# Installs the module that makes Python environments, where Debian or Ubuntu left it out.
set -eu
version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
package="python$version-venv"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y -q "$package" || { apt-get update -q && apt-get install -y -q "$package"; }
else
    echo "error: this Python cannot make environments: the module venv is missing" >&2
    echo "hint: sudo apt-get install $package" >&2
    exit 2
fi
