/*
 * nn/dataset/megatron_format.h - the fields of an .idx file of Megatron-LM, in its order,
 * little-endian:
 *
 *     "MMIDIDX\0\0"                9 bytes
 *     u64 version                  1
 *     u8  type                     of a token in the .bin file (wf_megatron_type)
 *     u64 sequences                S
 *     u64 document bounds          D, one more than there are documents
 *     i32 length[S]                tokens of a sequence
 *     i64 pointer[S]               the byte of the .bin file at which it begins
 *     i64 bound[D]                 the sequence at which a document begins; the last is S
 *
 * Multimodal files have a byte for each sequence after that.
 */
#ifndef WF_NN_DATASET_MEGATRON_FORMAT_H
#define WF_NN_DATASET_MEGATRON_FORMAT_H

#define WF_MEGATRON_MAGIC "MMIDIDX\0"

enum { WF_MEGATRON_MAGIC_SIZE = 9, WF_MEGATRON_HEADER_SIZE = 34, WF_MEGATRON_VERSION = 1 };

/** wf_megatron_type - the codes of types that token ids are stored as. */
typedef enum wf_megatron_type {
    WF_MEGATRON_U8 = 1,
    WF_MEGATRON_I32 = 4,
    WF_MEGATRON_U16 = 8
} wf_megatron_type;

#endif
