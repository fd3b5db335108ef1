/*
 * tests/parallel/test_moe_search.c - layouts of mixtures in the search, each with the time and
 * the bytes of its plan; which of them are candidates; and what advice splits.
 *
 * ctest: builds plain
 */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include "parallel/plan/tunables_internal.h"
#include "tests/harness.h"
#include "tests/parallel/gpt_request.h"
#include <string.h>

enum { BLOCKS = 4, WIDTH = 64, TOKENS = 32, BATCH = 64 };

/* Returns the best rank in a search's list of a layout with ep, or without; -1: there is none.
   Each layout's plan takes the bytes that the list says. */
static int index_of(const wf_plan_list *list, bool ep)
{
    int rank = -1;

    for (int i = 0; i < list->count; i++) {
        wf_plan_request r = list->layout[i].request;
        wf_error error = {WF_OK, ""};
        wf_plan_peak peak;

        CU_ASSERT_EQUAL(wf_plan_request_peaks(&r, 0, &peak, &error), WF_OK);
        CU_ASSERT_EQUAL(peak.bytes, list->layout[i].peak);
        if (rank < 0 && (r.ep > r.tp) == ep)
            rank = i;
    }
    return rank;
}

/* Wide experts of few tokens are split over ranks; narrow ones of many are gathered. */
static void search(void)
{
    for (int few = 0; few < 2; few++) {
        wf_error error = {WF_OK, ""};
        gpt_request made;
        wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, few ? 512 : 256,
                                              few ? 32 : 512, few ? 8 : 32, &made);
        wf_plan_list list;
        int with, without;

        if (!few)
            made.config.expert_ffn = 64;
        made.sizes = wf_par_gpt_sizes(&made.config, few ? 32 : 512);
        snprintf(r->search, sizeof r->search, "on");
        r->given[WF_SETTING_tp] = r->given[WF_SETTING_pp] = r->given[WF_SETTING_dtype] = true;
        r->given[WF_SETTING_strategy] = true;
        r->dp = r->ranks = 8;
        CU_ASSERT_EQUAL_FATAL(wf_plan_search(r, &list, &error), WF_OK);
        with = index_of(&list, true);
        without = index_of(&list, false);
        printf("\n    %d layouts, with ep from rank %d, without from %d: %s", (int)list.count,
               with, without, list.count ? list.layout[0].flags : "");
        CU_ASSERT(few ? with == 0 : without == 0);
        CU_ASSERT(list.has_data_parallel && list.data_parallel.request.ep <= 1);
        CU_ASSERT(list.data_parallel.seconds >= list.layout[0].seconds);
        wf_plan_list_free(&list);
    }
}

/* Candidates of a search cut experts at halves, and sum gradients as ep allows: 11 experts have
   halves on 2 and 4 ranks. */
static void candidates(void)
{
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, WIDTH, TOKENS, BATCH, &made);
    int most = 0, grouped = 0;
    wf_search *s;

    made.sizes.experts = 11;
    snprintf(r->search, sizeof r->search, "on");
    r->given[WF_SETTING_tp] = r->given[WF_SETTING_pp] = true;
    r->dp = r->ranks = 8;
    s = wf_search_open(r, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->ranks = 8;
    CU_ASSERT_EQUAL(wf_search_enumerate(s, &error), WF_OK);
    for (int64_t i = 0; i < s->count; i++) {
        const wf_search_candidate *c = &s->candidate[i];
        bool in_groups = strncmp(wf_search_accumulate[c->accumulate], "group", 5) == 0;

        most = wf_search_ep(c) > most ? (int)wf_search_ep(c) : most;
        grouped += in_groups;
        CU_ASSERT(!in_groups || wf_search_ep(c) == 1);
    }
    CU_ASSERT_EQUAL(most, 4);
    CU_ASSERT(grouped > 0);
    wf_search_close(s);
}

/* Ranks of tp split experts, or their features, as it is asked for; with a choice both are
   candidates, whose requests say it, and experts are no more than there are. */
static void features(void)
{
    static const int asked[] = {0, 1, 2}; /* etp; 0: nothing */

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int count[2] = {0, 0}, with_ep = 0;
        wf_error error = {WF_OK, ""};
        gpt_request made;
        wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, WIDTH, TOKENS, BATCH, &made);
        wf_search *s;

        made.sizes.experts = 4;
        snprintf(r->search, sizeof r->search, "on");
        r->given[WF_SETTING_pp] = true;
        r->given[WF_SETTING_etp] = asked[i] > 0;
        r->etp = asked[i] ? asked[i] : 1;
        r->dp = r->ranks = 8;
        s = wf_search_open(r, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        s->ranks = 8;
        CU_ASSERT_EQUAL(wf_search_enumerate(s, &error), WF_OK);
        for (int64_t n = 0; n < s->count; n++) {
            const wf_search_candidate *c = &s->candidate[n];
            wf_plan_request o = wf_search_options(s, c);

            count[c->features]++;
            with_ep += c->features && c->ep > 1;
            CU_ASSERT(!c->features || c->tp > 1);
            CU_ASSERT_EQUAL(o.etp, c->features ? c->tp : 1);
            CU_ASSERT_EQUAL(wf_plan_ep(&o), wf_search_ep(c));
            CU_ASSERT(c->ep == 1 || wf_search_owners(c) <= 4);
        }
        CU_ASSERT((count[0] > 0) == (asked[i] < 2));
        CU_ASSERT((count[1] > 0) == (asked[i] != 1));
        CU_ASSERT((with_ep > 0) == (asked[i] != 1));
        wf_search_close(s);
    }
}

/* Ranks of tp alone: whichever is faster comes first, experts or features split; the
   plan of either has the bytes that the list says. */
static void faster(void)
{
    wf_error error = {WF_OK, ""};
    gpt_request made;
    wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, 256, 64, 16, &made);
    bool both[2] = {false, false};
    wf_plan_list list;

    snprintf(r->search, sizeof r->search, "on");
    r->given[WF_SETTING_tp] = r->given[WF_SETTING_dtype] = r->given[WF_SETTING_pp] = true;
    r->given[WF_SETTING_micro_batch_size] = r->given[WF_SETTING_recompute] = true;
    r->micro_batch_size = 16;
    r->tp = r->ranks = 4;
    r->dp = 1;
    CU_ASSERT_EQUAL_FATAL(wf_plan_search(r, &list, &error), WF_OK);
    index_of(&list, true);
    for (int i = 0; i < list.count; i++) {
        both[list.layout[i].request.etp > 1] = true;
        CU_ASSERT(i == 0 || list.layout[i].seconds >= list.layout[i - 1].seconds);
        CU_ASSERT_EQUAL(strstr(list.layout[i].flags, "--etp 4") != NULL,
                        list.layout[i].request.etp == 4);
    }
    CU_ASSERT(both[0] && both[1]);
    wf_plan_list_free(&list);
}

/* Advice splits experts over more ranks, and over no more than there are experts. */
static void advice(void)
{
    gpt_request made;
    wf_plan_request *r = gpt_request_make("mixtral", BLOCKS, WIDTH, TOKENS, BATCH, &made);
    int64_t most = 0;

    made.sizes.experts = 4;
    r->dp = 8;
    for (int i = 0; i < WF_PLAN_TUNABLES; i++)
        for (int k = 0;; k++) {
            wf_plan_request o = *r;
            wf_plan_set set = wf_plan_tunables[i].set(&o, k);

            if (set == WF_PLAN_END)
                break;
            most = set == WF_PLAN_SET && o.ep > most ? o.ep : most;
        }
    CU_ASSERT_EQUAL(most, 4);
}

int main(void)
{
    static const wf_test tests[] = {
        {"the search has layouts with ep", search},
        {"candidates with ep", candidates},
        {"features over tp", features},
        {"a search of features", faster},
        {"advice of ep", advice},
        {NULL, NULL},
    };

    return wf_test_main("search of mixtures", tests);
}
