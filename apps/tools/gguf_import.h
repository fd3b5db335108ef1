/* apps/tools/gguf_import.h - gpt_export MODEL.gguf FOLDER: what the file says beside weights,
   as a folder has it. */
#ifndef WF_APPS_TOOLS_GGUF_IMPORT_H
#define WF_APPS_TOOLS_GGUF_IMPORT_H

#include <weft/weft.h>

/*
 * Write tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja, and
 * a config.json with the ids of first, last and padding token, into a folder, which is made
 * where it is missing: wf_par_pretrained_save takes it as `like`.
 *
 * @param config     of the file's model
 * @param tokenizer  false: none is written, and no ids are
 * Errors:  WF_EIO; WF_EDATA (file and key); WF_EUNSUPPORTED (a tokenizer that is neither
 *          byte-level BPE nor SentencePiece's, or that cuts texts in a way that has no name
 *          here); WF_ENOMEM
 */
wf_status app_gguf_import(const char *file, const wf_nn_gpt_config *config, const char *folder,
                          bool tokenizer, wf_error *error);

#endif
