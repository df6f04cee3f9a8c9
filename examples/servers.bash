# The settings and functions that the examples of servers share. Each example sources this file.

# Debian installs nginx in a folder that is not on every user's PATH.
PATH=$PATH:/usr/sbin
cairn=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.venv/bin/cairn
[ -x "$cairn" ] || cairn=cairn
# Workers of a server may run as another user, who must be able to read the files.
umask 022
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"

# With several CPUs, the server has the first one for itself, so that the program that sends the
# requests does not disturb it. The kernel lists the CPUs that this shell may use, such as 0-3,8.
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$$/status")
first=${allowed%%[-,]*}
others=${allowed#"$first"}
case $others in
-*) others=$((first + 1))$others ;;
,*) others=${others#,} ;;
esac
pinned=() apart=
[ -z "$others" ] || pinned=(--cpus "$first") apart="taskset -c $others"

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
