/* apps/tools/export_help.c - see the header. */
#include "apps/tools/export_help.h"
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

app_export_type_list app_export_types(const char *between)
{
    app_export_type_list l = {""};
    size_t used = 0;
    const char *type;

    for (int i = 0; (type = wf_par_pretrained_dtype_at(i)) && used < sizeof l.text; i++)
        used += (size_t)snprintf(l.text + used, sizeof l.text - used, "%s%s", i ? between : " ",
                                 type);
    return l;
}

bool app_export_has_type(const char *dtype)
{
    int i = 0;

    while (wf_par_pretrained_dtype_at(i) && strcmp(wf_par_pretrained_dtype_at(i), dtype) != 0)
        i++;
    return wf_par_pretrained_dtype_at(i) || strcmp(dtype, "nf4") == 0;
}

void app_export_help(void)
{
    printf("gpt_export - write a model as transformers or llama.cpp load it\n\n"
           "Usage: gpt_export FROM TO [--dtype%s|nf4] [--ema] [--merge] [--base DIR] [--ranks "
           "N] [--overwrite]\n"
           "       gpt_export FROM TO --experts N [--top-k K] [--dtype NAME] [--overwrite]\n",
           app_export_types("|").text);
    fputs(
        "       gpt_export FROM [TO] --gguf FILE [--gguf-type f32|f16|q8_0] [--tokenizer "
        "PATH] [--overwrite]\n\n"
        "  FROM   a checkpoint of gpt_train, or a directory of them, of which the newest is\n"
        "         taken; a folder with config.json and model.safetensors, or several files\n"
        "         and their index; or a GGUF file, whose numbers in blocks become floats\n"
        "  TO     a folder, made where it is missing: config.json and one model.safetensors;\n"
        "         and, where FROM is a folder, a GGUF file or a run that began with one\n"
        "         (--init-from), its tokenizer, generation_config.json, chat template and\n"
        "         first and last token\n"
        "         a run of adapters (--lora-rank) becomes a folder that PEFT loads, with\n"
        "         adapter_config.json and adapter_model.safetensors, unless --merge is given\n"
        "  --ema         write the moving average of the weights, which a run with --ema "
        "keeps, "
        "instead\n"
        "                of them: gpt_export out out_ema --ema\n"
        "  --merge       write the model with its adapters in its weights: W + scale B A, "
        "where\n"
        "                a base of 4 bits (--base-dtype nf4) has the numbers that it "
        "represents\n"
        "  --base DIR    the model that adapters are for (default: the --init-from of the "
        "run)\n"
        "  --experts N   make a mixture of a dense model, a folder or a GGUF file: N equal\n"
        "                experts in each block begin as its MLP (sparse upcycling), and a\n"
        "                router of small random numbers; gpt_train --init-from TO continues\n"
        "  --top-k K     experts that a token of it chooses (default: 2); with 1 its logits "
        "are\n"
        "                those of the dense model, bit for bit\n"
        "  --dtype NAME  type of the numbers (default: f32); rounded to the nearest, even in "
        "a\n"
        "                tie. nf4: linears in 4 bits, as bitsandbytes stores them, and all "
        "else\n"
        "                as f32; of a folder or a GGUF file\n"
        "  --gguf FILE   one file with weights, tokenizer and chat template, as llama.cpp and\n"
        "                ollama load it\n"
        "  --gguf-type NAME  type of its matrices: f32, f16 or q8_0, of 8.5 bits a number\n"
        "                (default: as they are stored in FROM); vectors are f32\n"
        "  --tokenizer PATH  the tokenizer for it, a folder or a file (default: what lies "
        "beside\n"
        "                the model); none: the file, or the folder that is made of a GGUF "
        "file,\n"
        "                gets none\n"
        "  --overwrite   a model in TO, or a GGUF file of the name of FILE, is replaced, once "
        "the\n"
        "                new one is whole; without the flag it is refused. Other files in TO\n"
        "                stay, and checkpoints and what is no GGUF file are refused in any "
        "case\n"
        "  --ranks N     ranks among which the model is spread; under mpirun or srun one in\n"
        "                each process, or more (default: as many as processes, else 1)\n"
        "  --help, --version\n\n"
        "Exit status: 0 done; 1 out of memory; 2 flags; 3 a file that cannot be read or\n"
        "written, or is damaged\n",
        stdout);
}
