/*
 * apps/gpt_train/calibrate.c - this machine's figures, measured: FLOP/s of products and of
 * attention and bytes/s of all other ops, at the sizes of the model, while all cores compute;
 * seconds of an op beside its kernel; collectives between threads.
 */
#include "apps/gpt_train/calibrate.h"
#include "parallel/plan/calibrate.h"
#include "parallel/report/layout.h"

static void print(FILE *out, const wf_sim_machine *m, const char *path)
{
    char bandwidth[32], link[32];

    fprintf(out,
            "%s: products %.4g FLOP/s of %.4g at best, attention %.4g, other ops %s/s, %.3g us "
            "beside each op; between ranks %s/s, %.3g us\n",
            path, m->products * m->rate[WF_BF16], m->rate[WF_BF16],
            m->attention * m->rate[WF_BF16], wf_size_text(bandwidth, m->bandwidth),
            1e6 * m->launch, wf_size_text(link, m->inside.bandwidth), 1e6 * m->inside.latency);
}

wf_status app_calibrate(app_job *job, FILE *out, wf_error *error)
{
    const char *path = job->options->calibrate;
    wf_sim_machine machine;

    if (wf_plan_calibrate(wf_plan_request_job(app_job_request(job), &job->made), &machine,
                          error) == WF_OK &&
        wf_sim_machine_write(&machine, path, error) == WF_OK)
        print(out, &machine, path);
    return error->code;
}
