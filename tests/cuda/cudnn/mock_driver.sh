#!/bin/sh
# mock_driver.sh STUB - C source of a driver with the functions of CUDA's stub libcuda.so, which all
# say that there is none (34), but for those that take compiled kernels: they succeed, and what they
# are to hand out first is the address of something. cuDNN then makes plans for GPUs that are not
# here.
set -e
symbols=$(nm -D --defined-only "$1" | awk '$2 == "T" && $3 ~ /^cu/ { print $3 }')
echo "static int something;"
for symbol in $symbols; do
    case $symbol in
    cuLibraryLoad* | cuLibraryGetKernel | cuKernelGetFunction | cuModuleLoad* | cuModuleGetFunction)
        parameters='void **handle' body='*handle = &something; return 0;' ;;
    cuLibrary* | cuKernel* | cuModule* | cuFunc* | cuOccupancy*)
        parameters=void body='return 0;' ;;
    *)
        parameters=void body='return 34;' ;;
    esac
    echo "int $symbol($parameters);"
    echo "int $symbol($parameters) { $body }"
done
