#!/bin/sh
# mock_driver.sh STUB - C source of a driver in which every function of CUDA's stub libcuda.so does
# nothing and succeeds. cuDNN then makes plans for GPUs that are not here.
set -e
symbols=$(nm -D --defined-only "$1" | awk '$2 == "T" && $3 ~ /^cu/ { print $3 }')
for symbol in $symbols; do
    echo "int $symbol(void);"
    echo "int $symbol(void)"
    echo "{"
    echo "    return 0;"
    echo "}"
done
