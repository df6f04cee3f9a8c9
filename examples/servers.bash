# The settings and functions that the examples of servers share. Each example sources this file.

# Debian installs nginx in a folder that is not on every user's PATH.
PATH=$PATH:/usr/sbin
cairn=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/cairn
[ -x "$cairn" ] || cairn=cairn
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Workers of a server may run as another user.
chmod 755 "$folder"

# With several CPUs, the server has the first one for itself, so that the program that sends the
# requests does not disturb it.
pinned=() apart= last=$(($(nproc) - 1))
if [ "$last" -gt 0 ]; then
    others=1
    [ "$last" = 1 ] || others=1-$last
    pinned=(--cpus 0) apart="taskset -c $others"
fi

# need PROGRAM PACKAGE - ends the script if the program is not installed.
need() {
    command -v "$1" >/dev/null || { echo "$1 is not installed; on Debian: apt-get install $2" >&2; exit 1; }
}

# compare NAME ARGUMENT… - runs the comparison.
compare() {
    echo "$1: which malloc should it use?"
    shift
    "$cairn" compare --budget 150s "${pinned[@]}" "$@"
}
