#!/bin/bash
# test_weft.sh WEFT - weft COMMAND becomes the program of that command, and says what it does not know.
#
# ctest: arguments weft_command, timeout 60
set -uo pipefail

program=$1
# shellcheck source=tests/apps/tool_cases.sh
. "$(dirname "$0")/tool_cases.sh"

tool "help" 0 --help
says out '^weft - ' '^  train  .*: gpt_train$' '^  plan  .*: gpt_train --plan$'
tool "nothing is asked" 2
says out '^Usage: weft COMMAND'
tool "version" 0 --version
says out '^weft of Weft [0-9.]+, commit '
tool "an unknown command" 2 trian
says err '^weft: there is no command trian; the commands are train, plan, data, .*: see weft --help$'
for pair in train:gpt_train data:gpt_data generate:gpt_generate eval:gpt_eval export:gpt_export ckpt:ckpt \
    diff:gpt_diff check:gpt_check mesh:mesh_info schedule:schedule recorder:recorder_diff; do
    tool "weft ${pair%:*}" 0 "${pair%:*}" --version
    says out "^${pair#*:} of Weft "
done
tool "weft plan" 0 plan --n-layer 1 --n-head 2 --n-embd 16 --seq-len 8 --tp 2
says out 'parameters'
tool "the program's exit status and mistake" 2 train --no-such-flag
says err '^gpt_train: .*--no-such-flag'
tool "an argument of several words" 2 schedule "gen zb"
says err 'gen zb'
ln -s "$program" elsewhere
program=./elsewhere
tool "through a link" 0 ckpt --version
says out '^ckpt of Weft '
cp -L elsewhere alone
program=./alone
LD_LIBRARY_PATH=$(dirname "$1")/..
export LD_LIBRARY_PATH
tool "without its programs" 3 train
says err '^weft: cannot start /.*/gpt_train: No such file'

# Plugins that a build has and a package of it lacks are not there: libweft alone, as the wheel has it.
mkdir lib
cp -L "$(dirname "$1")"/../libweft.so.* "$(dirname "$1")"/../libweft_text.so.* lib/
LD_LIBRARY_PATH=$PWD/lib WEFT_PLUGINS=$PWD/lib tool "a version without plugins" 0 --version
says out '^built in: threads, cpu; plugins here: none$'
program=$1
tool "completion" 0 --completion bash
# shellcheck disable=SC1091,SC2034,SC2154 # it was just made; bash's completion reads these words
if (. ./out && COMP_WORDS=(weft ge) COMP_CWORD=1 && _weft && [ "${COMPREPLY[*]}" = generate ]); then
    result "completes a command" ''
else
    result "completes a command" 'weft ge does not become weft generate'
fi
tool "a shell that is not known" 2 --completion fish
says err '^weft: --completion takes bash$'

finish
