# tests/scripts.cmake - tests that are short forms of scripts (scripts/proofs, scripts/pages); each script alone does more, or all.
# weft_short_form(TEST TIMEOUT SCRIPT ARGUMENT...): gcc's alone, as what they start is long; arguments as in a header (headers.cmake).
function(weft_short_form test timeout script)
    weft_words(arguments ${ARGN})
    add_test(NAME ${test} COMMAND python3 ${PROJECT_SOURCE_DIR}/scripts/${script} ${arguments})
    set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS heavy)
    weft_leave_out(${test} "" plain)
endfunction()

# The table of layouts on the README's first screen.
weft_short_form(apps.layouts 120 pages/layouts.py --check --weft build)
# What needs no GPU of the table that gpu_check.py prints of one.
weft_short_form(apps.gpu_table 120 proofs/gpu_table.py build)
# Its table beside a stand-in of PyTorch, on emulated GPUs; alone it tries all models and the speeds too.
weft_short_form(apps.gpu_stand_in 600 proofs/gpu_stand_in.py build --only table --quick)
# What docs/models.md says to do, with a real model; alone it trains longer.
weft_short_form(apps.page 600 pages/page.py build --steps 2)
# Links where programs write; alone it plants all kinds, at each name.
weft_short_form(apps.planted_files 300 proofs/planted_files.py --short build)
# 12 pairs of layouts; alone it does all 144, four times.
weft_short_form(apps.resume 300 proofs/resume_matrix.py --quick --gpt-train gpt_train)
weft_short_form(apps.resume_pipeline 300 proofs/resume_matrix.py --quick --pipeline --gpt-train gpt_train)
# Alone it does 50.
weft_short_form(apps.replay 300 proofs/replay.py --trials 4 --gpt-train gpt_train)
# What runs is planned, and what is refused is refused by both; alone it draws 400 layouts.
weft_short_form(apps.plan_runs 60 proofs/plan_runs.py --runs 12 --gpt-train gpt_train)
# Half of the runs in which every two values of all that pipelines can choose meet; without --quick every three.
weft_short_form(apps.exactness 300 proofs/exactness.py --pipeline --quick --part 1/2 --gpt-train gpt_train)
# A fifth of the mixtures' layouts.
weft_short_form(apps.exactness_moe 120 proofs/exactness.py --moe --quick --part 1/5 --jobs 1 --gpt-train gpt_train)
# A few runs of sequences that ranks split; alone every three choices meet.
weft_short_form(apps.exactness_cp 120 proofs/exactness.py --cp --quick --gpt-train gpt_train)
# Ranks that fail, by kind and moment; alone it tries all of them.
weft_short_form(hosts.failures 120 proofs/failures.py --quick build sanitized)
weft_short_form(hosts.pipeline_failures 120 proofs/failures.py --quick --pipeline build sanitized)
set_tests_properties(apps.page apps.exactness apps.gpu_stand_in PROPERTIES COST 50)
set_tests_properties(apps.resume apps.resume_pipeline PROPERTIES COST 20)
set_tests_properties(hosts.failures hosts.pipeline_failures PROPERTIES COST 100)
set_tests_properties(apps.exactness hosts.failures hosts.pipeline_failures PROPERTIES RESOURCE_LOCK launchers)
if(NOT WEFT_SANITIZE)
    # Orders of threads; alone it runs thousands.
    weft_short_form(scheduler.thread_orders 300 proofs/thread_orders.py --seeds 16 --once-failed build)
endif()
if(TARGET weft_mpi)
    # A host that is lost and comes back; alone it loses thirty.
    weft_short_form(hosts.elastic 200 proofs/elastic_hosts.py --trials 1 --seed 4 build)
    # Processes that differ in an option; alone it tries all of them.
    weft_short_form(hosts.agree 100 proofs/agree.py --quick build)
    set_tests_properties(hosts.elastic PROPERTIES COST 100)
    set_tests_properties(hosts.agree PROPERTIES COST 20)
    set_tests_properties(hosts.elastic hosts.agree PROPERTIES RESOURCE_LOCK launchers)
endif()
