#!/bin/bash
# test_mesh_info.sh MESH_INFO GPT_TRAIN TOPOLOGIES - mesh_info as a user meets it: what it prints for
# hosts that are not here, its picture, its warning, and what it refuses.
#
# ctest: arguments mesh_info gpt_train tests/mesh/topologies, timeout 60, environment ASAN_OPTIONS=detect_leaks=0
set -uo pipefail

program=$1 gpt_train=$2 hosts=$3
# shellcheck source=tests/apps/tool_cases.sh
. "$(dirname "$0")/tool_cases.sh"

tool "two hosts of 8 GPUs" 0 --hosts 2 --topology "$hosts/dgx_8gpu_8nic.xml" --tp 8 --dp 2 \
    --bytes-tp 1000000 --bytes-dp 70000 --svg mesh.svg
says out 'nvml0 .* rank 0 .*shard 0, tp 0; network by mlx5_0 \(PCIe switch\)' \
    'nvml7 .* rank 15 .*shard 1, tp 7; network by mlx5_7' \
    'tp: 2 groups of 8, worst link nvlink' 'shard: 8 groups of 2, worst link network' \
    '^  network +1\.07 MiB +' '^  into one host, at most +546\.88 KiB +'
[ ! -s err ] || says err 'nothing is written here'
says mesh.svg '^<svg ' '>rank 15<' '>host 1: ' '^</svg>$'
[ "$(grep -c '>rank [0-9]*<' mesh.svg)" = 16 ] || says mesh.svg '16 ranks'

tool "tp over two hosts" 0 --hosts 2 --topology "$hosts/odd_5gpu.xml" --tp 8
says err 'warning: 1 of 1 tp groups of 8 do not sit inside one host \(the largest has 5 devices\)'
says out ' free'
tool "synthetic text, unequal hosts" 0 --topology 'pack:1 core:2 pu:1' \
    --topology 'pack:2 l3:1 core:2 pu:1' --tp 2 --dp 3
says out 'host 1, pack:2 l3:1 core:2 pu:1: 2 packages, 4 cores' 'core3 +rank 5'
tool "this machine" 0
says out 'host 0, this machine'
tool "help" 0 --help
says out 'mesh_info --hosts 4'

"$gpt_train" --plan --tp 2 --dp 4 --json plan.json >out 2>err || result "a plan" "exit status $?"
tool "bytes of a plan" 0 --hosts 2 --topology "$hosts/pairs_4gpu.xml" --plan plan.json
says out 'bytes of a step from plan.json' 'shard 4 x tp 2' '\(bytes' 'tp: 4 groups of 2, worst link nvlink'

tool "sizes twice" 2 --plan plan.json --tp 2
tool "too few devices" 2 --topology 'pack:1 core:2 pu:1' --tp 4
says err '4 ranks do not fit on 1 host with 2 devices'
tool "no such file" 3 --topology nowhere.xml
tool "not a number" 2 --tp two
tool "no such flag" 2 --tensor 2
tool "not a plan" 3 --plan "$hosts/make.py"
tool "a picture nowhere" 3 --svg nowhere/mesh.svg
finish
