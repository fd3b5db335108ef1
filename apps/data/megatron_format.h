/*
 * apps/data/megatron_format.h - what an .idx file of Megatron-LM has, in its order, little-endian:
 *
 *     "MMIDIDX\0\0"                9 bytes
 *     u64 version                  1
 *     u8  type                     what a token of the .bin file is (app_megatron_type)
 *     u64 sequences                S
 *     u64 document bounds          D, one more than there are documents
 *     i32 length[S]                tokens of a sequence
 *     i64 pointer[S]               the byte of the .bin file at which it begins
 *     i64 bound[D]                 the sequence at which a document begins; the last is S
 *
 * Multimodal files have a byte for each sequence behind that.
 */
#ifndef WF_APPS_DATA_MEGATRON_FORMAT_H
#define WF_APPS_DATA_MEGATRON_FORMAT_H

#define APP_MEGATRON_MAGIC "MMIDIDX\0"

enum { APP_MEGATRON_MAGIC_SIZE = 9, APP_MEGATRON_HEADER_SIZE = 34, APP_MEGATRON_VERSION = 1 };

/** app_megatron_type - the codes of types that token ids are stored as. */
typedef enum app_megatron_type {
    APP_MEGATRON_U8 = 1,
    APP_MEGATRON_I32 = 4,
    APP_MEGATRON_U16 = 8
} app_megatron_type;

#endif
