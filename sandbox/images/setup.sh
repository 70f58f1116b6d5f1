#!/bin/sh
# What both ways of building do to the root file system at $1, beside installing packages.
set -eu
root="${1%/}"

# Writable for every user: the strict profile runs as uid 1000, the default one as root.
mkdir -p -m 0777 "$root/workspace"
chmod 0777 "$root/workspace"

# One sandbox is one group's: repositories of its other users are as trusted as one's own.
printf '[safe]\n\tdirectory = *\n' > "$root/etc/gitconfig"

# The sandbox itself is the environment; `pip install` need not ask for a virtual one.
printf '[global]\nbreak-system-packages = true\n' > "$root/etc/pip.conf"
