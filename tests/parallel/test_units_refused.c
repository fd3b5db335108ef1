/* tests/parallel/test_units_refused.c - strategies and wrap policies that are refused, each by
   what is wrong. */
#include "tests/mesh/mesh_harness.h"
#include "tests/parallel/units_gpt.h"

static wf_status wrong_strategies(wf_rank *rank, void *arg)
{
    static const struct {
        wf_par_options options;
        const char *words;
    } bad[] = {
        {{.dp = 2, .strategy = "zero9"},
         "there is no strategy zero9; use one of: full_shard, "},
        {{.dp = 2, .strategy = "mics"}, "strategy mics has groups of ranks: say how many"},
        {{.dp = 2, .strategy = "mics", .shard_group_size = 3},
         "dp 2 cannot be laid out in groups with shard-group-size 3"},
        {{.dp = 2, .strategy = "mics", .dp_replicate = 4},
         "dp 2 cannot be laid out in groups with dp-replicate 4"},
        {{.dp = 2, .strategy = "hybrid_shard", .dp_replicate = 2, .shard_group_size = 2},
         "dp 2 is not 2 groups of 2 ranks"},
        {{.dp = 2, .strategy = "zero1", .dp_replicate = 2}, "strategy zero1 has no groups"},
        {{.dp = 2, .prefetch = -1}, "prefetch -1 and wrap_min_params 0 cannot be negative"},
    };

    (void)arg;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_error error = {WF_OK, ""};

        NEED(!wf_par_open(rank, &bad[i].options, &error));
        NEED(error.code == WF_EINVAL && strstr(error.text, bad[i].words));
    }
    return WF_OK;
}

static wf_status no_such_type(part *p)
{
    (void)p;
    return WF_EINTERNAL; /* planning has failed before */
}

static wf_status wrong_type(wf_rank *rank, void *arg)
{
    part_test wrong = {.options = {.dp = 2, .wrap_type = "blok"},
                       .config = &tiny,
                       .plan = wf_par_gpt_plan,
                       .body = no_such_type};

    (void)arg;
    NEED(part_rank(rank, &wrong) == WF_EINVAL);
    NEED(strstr(rank->error.text, "no module of the model is of type blok"));
    NEED(strstr(rank->error.text, "are of types gpt, embedding, "));
    NEED(strstr(rank->error.text, ", block, ") && strstr(rank->error.text, ", attention, "));
    rank->error = (wf_error){WF_OK, ""};
    wrong.options.wrap_type = "mlp";
    wrong.options.wrap_min_params = 100;
    NEED(part_rank(rank, &wrong) == WF_EINVAL);
    NEED(strstr(rank->error.text, "(wrap_type mlp) or by number of parameters"));
    rank->error = (wf_error){WF_OK, ""};
    return WF_OK;
}

static void strategies_that_cannot_be(void)
{
    run_ranks(2, wrong_strategies, NULL);
}

static void wrap_policies_that_cannot_be(void)
{
    run_ranks(2, wrong_type, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"strategies that cannot be", strategies_that_cannot_be},
        {"wrap policies that cannot be", wrap_policies_that_cannot_be},
        {NULL, NULL},
    };

    return wf_test_main("units_refused", tests);
}
