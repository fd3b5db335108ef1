#!/bin/bash
# man_page.sh PROGRAM VERSION SEE-ALSO - writes the manual page of one of Weft's programs, section 1,
# made of what PROGRAM --help says, so that the two cannot differ. SEE-ALSO names the others.
#
# What it knows of a help: the first line is "name - what it does"; "Usage:" and "Exit status:" begin
# what they say; a line of its own at the margin with no punctuation is a heading; two blanks, a term,
# and two blanks or more before its text make an item; anything else at the margin is a paragraph.
set -euo pipefail

if [ $# != 3 ]; then
    echo "usage: $0 PROGRAM VERSION SEE-ALSO" >&2
    exit 2
fi
help=$("$1" --help)
# The day of the page, which a build that is to be repeated to the bit sets.
day=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F)
awk -v version="$2" -v others="$3" -v day="$day" '
function clean(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return text }
# A blank line parts paragraphs where text is on both sides of it.
function part() { if (blank && text_before && !plain) print ".PP"; blank = 0; text_before = 1 }
function out(text) { part(); if (text ~ /^[.\047]/) text = "\\&" text; print text }
function verbatim(on) { if (on != plain) { plain = on; print on ? ".nf" : ".fi" } }
function section(name) { verbatim(0); blank = text_before = 0; title = name; print ".SH " toupper(name); groups = 0 }
# A group of options; the first one opens their section.
function group(name)
{
    if (title != "Options")
        section("Options")
    verbatim(0)
    blank = text_before = 0
    print ".SS " name
}
function item(line,    term)
{
    term = line
    if (match(line, /[^ ]   */)) {
        term = substr(line, 1, RSTART)
        line = substr(line, RSTART + RLENGTH)
    } else
        line = ""
    blank = 0
    text_before = 1
    print ".TP"
    print ".B " clean(term)
    if (line != "")
        out(clean(line))
}
NR == 1 {
    name = $1
    print ".TH " toupper(name) " 1 \"" day "\" \"Weft " version "\" \"Weft\""
    section("Name")
    sub(/ - /, " \\- ")
    print
    next
}
title == "Examples" && /^ / { verbatim(1); out(clean(substr($0, 3))); next }
/^Usage: / { section("Synopsis"); print ".B " clean(substr($0, 8)); next }
/^Exit status/ {
    section("Exit status")
    sub(/^Exit status:? */, "")
    if ($0 != "")
        out(clean($0))
    next
}
/^Examples$/ { section("Examples"); next }
/^$/ { if (title == "Synopsis") section("Description"); else blank = 1; next }
title == "Exit status" { sub(/^ */, ""); out(clean($0)); next }
/^[A-Z][a-z]*$/ { group($0); next }
/^  [^ ]/ { item(substr($0, 3)); next }
{ sub(/^ */, ""); out(clean($0)) }
END {
    section("See also")
    n = split(others, other, " ")
    for (i = 1; i <= n; i++)
        if (other[i] != name)
            list = list (list == "" ? "" : ", ") "\\fB" other[i] "\\fR(1)"
    print list
}' <<<"$help"
