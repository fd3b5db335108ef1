#!/bin/bash
# corpus.sh OUT - writes OUT, a plain text file of real English prose to train on, and says whose.
# First choice: Spurgeon's Treasury of David (public domain, 12 MB) from the distribution's package
# sword-comm-tdavid, unpacked beside OUT without installing it. Where packages can't be had: the
# licenses that every Debian and Ubuntu carries (0.2 MB). An OUT that is there already is kept.
set -euo pipefail

package=sword-comm-tdavid
licenses=/usr/share/common-licenses
scripts=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
-h | --help)
    sed -n 's/^# \{0,1\}//; 2,5p' "$0"
    exit 0
    ;;
-* | "")
    echo "usage: $0 OUT" >&2
    exit 2
    ;;
esac
if [ $# != 1 ]; then
    echo "usage: $0 OUT" >&2
    exit 2
fi
out=$1
if [ -s "$out" ]; then
    echo "corpus: keeping $out ($(stat -c %s "$out") bytes); delete it to make it anew"
    exit 0
fi

mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$(cd "$(dirname "$out")" && pwd)/.corpus.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Needs no root: the package is only unpacked. As root, apt would warn that its own user can't
# write here; the download may as well be root's.
download()
{
    local sandbox=()

    [ "$(id -u)" != 0 ] || sandbox=(-o APT::Sandbox::User=root)
    (cd "$work" && apt-get "${sandbox[@]}" download -qq $package) >/dev/null 2>&1
}

# A fresh container has no package lists yet.
update_lists()
{
    if [ "$(id -u)" = 0 ]; then
        apt-get update -qq
    else
        sudo -n apt-get update -qq
    fi >/dev/null 2>&1
}

prose()
{
    local modules=/usr/share/sword/modules/comments/zcom/tdavid

    if [ ! -d $modules ]; then
        command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
        download || { update_lists && download; } || return 1
        dpkg -x "$work"/$package*.deb "$work/unpacked" || return 1
        modules=$work/unpacked$modules
    fi
    python3 "$scripts/sword_text.py" "$modules" "$work/text"
}

if prose; then
    source="Treasury of David, C. H. Spurgeon (package $package, public domain)"
else
    echo "corpus: package $package can't be had here; falling back to $licenses" >&2
    find $licenses -type f | LC_ALL=C sort | xargs -d '\n' cat >"$work/text"
    source="the license texts of $licenses"
fi
if [ ! -s "$work/text" ]; then
    echo "corpus: found no text; give gpt_train any text file of yours with --data" >&2
    exit 1
fi
chmod 644 "$work/text"
mv "$work/text" "$out"
echo "corpus: $out, $(stat -c %s "$out") bytes: $source"
