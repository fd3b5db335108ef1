/*
 * tests/nn/safetensors_file.h - reads a small file of the safetensors format whole:
 *
 *     u64 n, little endian | n bytes of JSON | data
 *     JSON: {"__metadata__": {key: text, ..}, name: {"dtype", "shape", "data_offsets"}, ..}
 */
#ifndef WF_TESTS_NN_SAFETENSORS_FILE_H
#define WF_TESTS_NN_SAFETENSORS_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum { SAFETENSORS_DIMS = 6 };

typedef struct safetensors safetensors;

typedef struct safetensors_entry {
    const void *data;
    int ndim;
    int64_t dim[SAFETENSORS_DIMS], count;
} safetensors_entry;

/* NULL with the reason on stdout where there is no such file or it is damaged. */
safetensors *safetensors_open(const char *path);
void safetensors_close(safetensors *file);

/* The tensor of a name and a dtype ("F32", "I32"), of four bytes per element; false where there
   is none, or where its sizes and its bytes do not agree. */
bool safetensors_find(const safetensors *file, const char *name, const char *dtype,
                      safetensors_entry *entry);

/* Returns a text of __metadata__, or NULL; safetensors_number - the number in it, or NaN. */
const char *safetensors_text(const safetensors *file, const char *key);
double safetensors_number(const safetensors *file, const char *key);

/* Returns the number of tensors. */
int64_t safetensors_count(const safetensors *file);

#endif
