# cmake -DSOURCE=DIR -DOUT=FILE -P commit.cmake - writes a header with the commit that DIR is at,
# "" where DIR is no checkout of its own. The file is touched only when that changes.
set(commit "")
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
get_filename_component(source "${SOURCE}" REALPATH)
if(top)
    get_filename_component(top "${top}" REALPATH)
endif()
if(top STREQUAL source)
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude * --abbrev=12
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#define WEFT_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUT})
    file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
    file(WRITE ${OUT} ${text})
endif()
