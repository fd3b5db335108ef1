/*
 * core/files/prepare.h - outputs of a program, prepared before it begins: the folders that they
 * are to be in are made, and each output is checked, while nothing that is there changes. A
 * program prepares all of its outputs, then begins any: a start that fails leaves earlier
 * results as they were.
 */
#ifndef WF_CORE_FILES_PREPARE_H
#define WF_CORE_FILES_PREPARE_H

#include "core/status.h"
#include <stdbool.h>
#include <sys/stat.h>

WF_BEGIN_DECLS

/* Returns whether these are one file or directory, under whatever names. */
static inline bool wf_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/**
 * wf_output_prepare - makes the folders above a file and checks that it can be written
 *
 * A file that is there stays as it is, one that is not there is not made. Pipes and devices can
 * be written.
 *
 * @param flag  names the output in messages: "--trace"
 * Errors:      WF_EIO with flag, path and reason; WF_ENOMEM
 */
WF_API wf_status wf_output_prepare(const char *flag, const char *path, wf_error *error);

/** wf_output_prepare_folder - makes a folder with those above it, and checks that files can be
 * made in it */
WF_API wf_status wf_output_prepare_folder(const char *flag, const char *path, wf_error *error);

WF_END_DECLS

#endif
