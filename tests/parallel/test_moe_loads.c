/*
 * tests/parallel/test_moe_loads.c - loads of experts that a run has measured: rows of its log,
 * and rows that are none.
 *
 * ctest: builds plain
 */
#include "parallel/plan/imbalance.h"
#include "tests/harness.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static wf_status loads_of(const char *text, wf_sim_model *model, wf_error *error)
{
    char path[] = "/tmp/weft-loads-XXXXXX";
    int file = mkstemp(path);
    wf_status status;

    CU_ASSERT_FATAL(file >= 0);
    CU_ASSERT(write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    *error = (wf_error){WF_OK, ""};
    status = wf_plan_imbalance(path, model, error);
    unlink(path);
    return status;
}

/* Rows of a run: of each layer the fullest rank, in the mean of layers; steps are added up. */
static void measured(void)
{
    wf_sim_model model = {.experts = 4};
    wf_error error;

    for (int k = 0; k < 2; k++) /* a file replaces what another one said */
        CU_ASSERT_EQUAL(
            loads_of(
                "{\"run\": 1}\n"
                "{\"step\": 1, \"expert_load\": {\"a\": [1, 1, 1, 1], \"b\": [4, 0, 0, 0]}}\n"
                "{\"step\": 2, \"expert_load\": {\"a\": [3, 1, 1, 3], \"b\": [0, 4, 0, 0]}}\n"
                "{\"step\": 3, \"expert_lo",
                &model, &error),
            WF_OK);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_fullest(&model, 1), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_fullest(&model, 2), (1 + 2) / 2.0, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_fullest(&model, 4), (4.0 / 3 + 2) / 2, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_fullest(&model, 8), (4.0 / 3 + 2) / 2, 1e-12);
    CU_ASSERT_EQUAL(loads_of("{\"step\": 1}\n", &model, &error), WF_EDATA);
    CU_ASSERT(strstr(error.text, ".moe_report") != NULL);
    CU_ASSERT_EQUAL(loads_of("{\"expert_load\": {\"a\": [1, 2]}}\n", &model, &error), WF_EDATA);
    CU_ASSERT(strstr(error.text, "2 experts, and the model has 4") != NULL);
    CU_ASSERT_EQUAL(loads_of("{\"expert_load\": {\"a\": [1, -2, 0, 0]}}\n", &model, &error),
                    WF_EDATA);
    CU_ASSERT_EQUAL(loads_of("{\"expert_load\": {\"a\": [1, 1, 1, 1]}}\n"
                             "{\"expert_load\": {\"a\": [1, 1, 1, 1, 1, 1]}}\n",
                             &model, &error),
                    WF_EDATA);
    CU_ASSERT(strstr(error.text, "line 2: expert_load of a has 6 experts") != NULL);
    CU_ASSERT_DOUBLE_EQUAL(wf_sim_fullest(&model, 2), 1.5, 1e-12); /* unchanged */
}

int main(void)
{
    static const wf_test tests[] = {
        {"loads that were measured", measured},
        {NULL, NULL},
    };

    return wf_test_main("loads of mixtures", tests);
}
