/*
 * parallel/models/gpt/pretrained.h - models in the format of Hugging Face's transformers: a
 * folder with config.json and model.safetensors (or several, with their index). The families of
 * nn/models/gpt/families.def; every rank reads and writes its own parts alone, whatever the
 * layout. Where a folder is read, a GGUF file may stand, as llama.cpp has them: its numbers in
 * blocks become floats, what it rotates comes back into transformers' order.
 */
#ifndef WF_PARALLEL_MODELS_GPT_PRETRAINED_H
#define WF_PARALLEL_MODELS_GPT_PRETRAINED_H

#include "nn/models/gpt/gpt.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/formats/gguf.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/**
 * wf_par_pretrained_config - reads the config of a folder's model
 *
 * Where a tied config (tie_word_embeddings) stands beside files with a head that differs from
 * the embedding, the model is not tied, as transformers have it.
 *
 * @param config  filled; dropout is 0
 * Collective:  no
 * Errors:      WF_EIO (no such file), WF_EDATA (damaged), WF_EUNSUPPORTED (another kind of
 *              model, or keys of which Weft does not know what they mean, by name)
 */
WF_API wf_status wf_par_pretrained_config(const char *folder, wf_nn_gpt_config *config,
                                          wf_error *error);

enum { WF_PAR_PRETRAINED_ENDS = 128 };

/** wf_par_pretrained_ends - the tokens that end a text, from a folder's config */
typedef struct wf_par_pretrained_ends {
    int64_t count;
    int32_t id[WF_PAR_PRETRAINED_ENDS]; /* each once; the model need not have them all */
} wf_par_pretrained_ends;

/**
 * wf_par_pretrained_ends_read - reads "eos_token_id" of a folder's generation_config.json,
 * where there is one, and config.json
 *
 * @param ends  filled, also where an error is returned
 * Collective:  no
 * Errors:      WF_EIO (no config.json), WF_EDATA (damaged, or ids that are none; with the file
 *              and the key), WF_EUNSUPPORTED (keys of which Weft does not know what they mean,
 *              or that ask for what it does not do, by name), WF_ENOMEM
 */
WF_API wf_status wf_par_pretrained_ends_read(const char *folder, wf_par_pretrained_ends *ends,
                                             wf_error *error);

/**
 * wf_par_pretrained_load - fills a materialised model with the weights of a folder
 *
 * F32, BF16 and F16 are read, into f32; of a GGUF file also Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
 * Q5_K, Q6_K. A model that ties its head to the embedding (tie_word_embeddings) is loaded into
 * one that does (wf_nn_gpt_config.tied), or into one whose head begins as the embedding.
 *
 * @param model  built from the folder's config, planned and materialised
 * Layout:      any; a rank reads the runs of its own parts
 * Collective:  no
 * Errors:      in the context: WF_EIO, WF_EDATA (a tensor is missing, has another shape or
 *              type, or belongs to no parameter), WF_EINVAL (a head of its own, and `model` is
 *              tied), WF_EUNSUPPORTED (a pickle), WF_ENOMEM
 */
WF_API wf_status wf_par_pretrained_load(wf_par *par, wf_nn_gpt *model, const char *folder);

/**
 * wf_par_pretrained_fits - checks that a folder's weights are those of a model like this one,
 * before wf_par_pretrained_load, whose errors end a run
 *
 * Its config.json may have another number of positions where these are no parameters (RoPE),
 * and a tied head where the model's is not; nothing else may differ. Tensors are looked up, and
 * no numbers are read.
 *
 * @param model  as of wf_par_pretrained_load
 * Collective:   no
 * Errors:       WF_EINVAL (a property differs, by name), those of wf_par_pretrained_load, in
 *               `error` alone
 */
WF_API wf_status wf_par_pretrained_fits(wf_par *par, wf_nn_gpt *model, const char *folder,
                                        wf_error *error);

/** wf_par_pretrained_dtype_at - returns the i-th type that weights can be written as, "f32" and
 * so on; NULL after the last. */
WF_API const char *wf_par_pretrained_dtype_at(int i);

/**
 * wf_par_pretrained_save - writes a model as a folder that transformers load
 *
 * model.safetensors gets its size first and is then written by all ranks, each part once, in
 * pieces of a few MiB; files have other names until they are whole.
 *
 * @param folder  made where it is missing; a model in it is replaced
 * @param dtype   a name of wf_par_pretrained_dtype_at; NULL: f32. Rounded to the nearest, ties
 *                to even
 * @param like    NULL, or the folder of the model that this one was made of, or of
 *                wf_par_pretrained_keep: its tokenizer, generation_config.json, chat template
 *                and the ids of its first, last and padding token are copied
 * Layout:      any; nothing is gathered
 * Collective:  over the world; the ranks share the folder
 * Errors:      in the context, on all ranks: WF_EINVAL (dtype), WF_EIO, WF_EDATA (`like` is
 *              damaged), WF_ENOMEM, WF_ELOST
 */
WF_API wf_status wf_par_pretrained_save(wf_par *par, wf_nn_gpt *model, const char *folder,
                                        const char *dtype, const char *like);

/**
 * wf_par_pretrained_convert - writes the weights of a folder, or of a GGUF file, as a folder
 * that transformers load
 *
 * One parameter at a time: the model is never in memory as a whole.
 *
 * @param model   of the config of `from`, on the fake device: nothing of it is made; or of
 *                wf_par_pretrained_upcycled, where experts begin as the MLP of their block and
 *                routers as their recipes draw them
 * @param folder  made where it is missing; a model in it is replaced
 * @param dtype, like  as in wf_par_pretrained_save; also "nf4": linears in 4 bits, as
 *                     bitsandbytes stores them, all else as f32
 * Collective:    no; one process does it
 * Errors:        WF_EIO, WF_EDATA (`from` or `like` is damaged), WF_EINVAL (dtype),
 *                WF_EUNSUPPORTED, WF_ENOMEM
 */
WF_API wf_status wf_par_pretrained_convert(wf_nn_gpt *model, const char *from,
                                           const char *folder, const char *dtype,
                                           const char *like, wf_error *error);

/**
 * wf_par_pretrained_upcycled - computes the config of a mixture that a dense model begins as
 * ("sparse upcycling", Komatsuzaki et al. 2022): E equal experts in each block, whose weights
 * add up to 1, in the first family that has such
 *
 * With top_k 1 its logits are those of the dense model, bit for bit.
 *
 * Errors: WF_EINVAL (a mixture already; more experts of a token than there are),
 *         WF_EUNSUPPORTED (MLPs that are no experts; a model of which no family has a mixture)
 */
WF_API wf_status wf_par_pretrained_upcycled(const wf_nn_gpt_config *dense, int64_t experts,
                                            int64_t top_k, wf_nn_gpt_config *mixture,
                                            wf_error *error);

/* The name, beside checkpoints, of the copy of the folder that a run began with. */
#define WF_PAR_PRETRAINED_KEPT "pretrained"

/**
 * wf_par_pretrained_keep - copies all files of a folder, but for the weights, to another one
 *
 * For a run that starts from the folder: a later export needs them (`like`), and the folder may
 * be gone.
 *
 * @param to    made where it is missing
 * Collective:  no; one process does it
 * Errors:      WF_EIO, WF_EDATA (a file is too large), WF_ENOMEM
 */
WF_API wf_status wf_par_pretrained_keep(const char *from, const char *to, wf_error *error);

/** wf_par_pretrained_file - returns the name of file number i, from 0 on, of those that a
 * folder may have beside its model's config and weights: of tokenizer, token ids and chat
 * template; NULL after the last one. Owner: static. */
WF_API const char *wf_par_pretrained_file(int i);

/* The folder beside them with chat templates that have names, NAME.jinja each. */
#define WF_PAR_PRETRAINED_TEMPLATES "additional_chat_templates"

/** wf_par_gguf_type - the type of matrices in a GGUF file; vectors are float32 in each. */
typedef enum wf_par_gguf_type {
    /* the type in the source files: float32, float16 or bfloat16 */
    WF_PAR_GGUF_STORED,
    WF_PAR_GGUF_FLOAT32,
    WF_PAR_GGUF_FLOAT16,
    /* blocks of 32 with a scale: 8.5 bits each; float16 where rows do not divide by 32 */
    WF_PAR_GGUF_Q8_0
} wf_par_gguf_type;

typedef struct wf_par_gguf_options {
    const char *folder;                  /* NULL: the weights come from the checkpoint */
    const wf_par_checkpoint *checkpoint; /* NULL: they come from the folder */
    wf_par_gguf_type type;
    const char *name; /* the model's name for users */
    int64_t key_count;
    const wf_par_gguf_key *key; /* further metadata of the file: the tokenizer */
} wf_par_gguf_options;

/**
 * wf_par_pretrained_save_gguf - writes a model as one GGUF file, for llama.cpp and programs on
 * top of it
 *
 * Weights are copied from file to file one tensor at a time; the file has another name until it
 * is whole. Rotated rows of a Llama are brought into llama.cpp's order: it rotates neighbours,
 * where transformers and Weft rotate i and i + half a head. A tied head is left out.
 *
 * @param model  of the folder's or the checkpoint's config, on the fake device: nothing of it
 *               is made
 * @param path   of the file; replaced where it exists
 * Collective:   no; one process does it
 * Errors:       WF_EIO, WF_EDATA (damaged, another model, a number that the type does not
 *               have), WF_EINVAL, WF_EUNSUPPORTED (a parameter that llama.cpp has no name for),
 *               WF_ENOMEM
 */
WF_API wf_status wf_par_pretrained_save_gguf(wf_nn_gpt *model,
                                             const wf_par_gguf_options *options,
                                             const char *path, wf_error *error);

WF_END_DECLS

#endif
