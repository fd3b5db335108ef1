#!/bin/bash
# bare_root.sh - a clean Debian or Ubuntu to try Weft in, as root: sourced by debian_root.sh and proofs/wheel_root.sh.
# shellcheck disable=SC2034 # what is set here is read there

# take_options ARGUMENT..: sets suite, mirror and corpus by --suite, --mirror and --corpus, and `rest`, the arguments after them; of an
# option that is none of these `rest` is empty.
take_options()
{
    suite=bookworm mirror=http://deb.debian.org/debian corpus=
    while [[ ${1:-} == --* ]]; do
        case "$1" in
        --suite) suite=$2 ;;
        --mirror) mirror=$2 ;;
        --corpus) corpus=$2 ;;
        *) set -- ;;
        esac
        shift 2 || break
    done
    rest=("$@")
}

# show_usage SCRIPT: its first comment, on stderr.
show_usage()
{
    sed -n '2,/^set/s/^# \{0,1\}//p' "$1" >&2
}

# make_root ROOT [OPTION..]: by debootstrap with these options; a ROOT with a system in it is kept. Its names and hosts are this machine's.
make_root()
{
    local root=$1
    shift
    if [ ! -x "$root/usr/bin/apt-get" ]; then
        mkdir -p "$root"
        debootstrap --variant=minbase "$@" "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2 && exit 2; }
    fi
    cp /etc/hosts /etc/resolv.conf "$root/etc/" 2>/dev/null || true
}

# in_root ROOT COMMAND: a line of shell in the root, with /proc, /sys and /dev, which are gone with it.
in_root()
{
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --mount --pid --fork bash -c 'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && cd / &&
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            chroot "$0" bash -c "$1"' "$1" "$2"
}

# bring_corpus FILE: the text of --corpus, or as scripts/corpus.sh makes it, at FILE.
bring_corpus()
{
    [ -n "$corpus" ] || "$(dirname "${BASH_SOURCE[0]}")/corpus.sh" "${corpus:=$1}" >/dev/null
    [ "$corpus" -ef "$1" ] || cp "$corpus" "$1"
}
