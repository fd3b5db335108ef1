/* apps/gpt_data/main.c - text as training data: see gpt_data --help. */
#include "apps/gpt_data/commands.h"
#include "apps/program.h"
#include <string.h>

static int exit_status(wf_status status)
{
    if (status == WF_OK)
        return 0;
    if (status == WF_EINVAL || status == WF_EUNSUPPORTED)
        return 2;
    return status == WF_EIO || status == WF_EDATA ? 3 : 1;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    app_gpt_data_request q;
    wf_status status;

    app_program_begin();
    if (app_program_version_asked("gpt_data", argc, argv))
        return app_program_end("gpt_data", 0);
    status = app_gpt_data_parse(argc, argv, &q, &error);
    if (status == WF_OK && q.help)
        fputs(app_gpt_data_help, stdout);
    else if (status == WF_OK)
        status = strcmp(q.command, "show") == 0       ? app_gpt_data_show(&q, &error)
                 : strcmp(q.command, "tokenize") == 0 ? app_gpt_data_tokenize(&q, &error)
                 : strcmp(q.command, "chat") == 0     ? app_gpt_data_chat(&q, &error)
                 : strcmp(q.command, "pack") == 0     ? app_gpt_data_pack(&q, &error)
                                                      : app_gpt_data_train(&q, &error);
    if (status != WF_OK)
        app_program_error("gpt_data", &error);
    return app_program_end("gpt_data", exit_status(status));
}
