# tests/sanitizers.cmake - the tests that a sanitizer's build runs. The plain build runs all; a sanitized one runs those
# in which there is something for it to see that no other of its tests shows.

# AddressSanitizer with UndefinedBehaviorSanitizer runs all but these.
set(weft_not_address
    # sums, counts and formulas over code that other tests run
    test_inexact test_collectives test_math test_rule test_plan_run test_placement test_placement_packed test_reference
    test_steady test_shard_traffic test_schedules_mutants test_plan_pipeline test_profile test_numerics_portable
    test_any_dp test_bf16 test_dtype test_muon_ranks
    # the search's plans, one by one: apps.search runs the same lines
    test_search_memory
    # the emulated GPU is run by cuda.test_cuda_train and cuda.test_cuda_ops, the program by apps.cli_runs
    cuda.gpt_train test_cuda_math test_cuda_graph_train
    # programs that hwloc leaves memory in; parallel.test_output runs the writer
    apps.planted_files
    # adapters, stages and narrow storage are run by parallel.test_pipeline, apps.lora and parallel.test_no_memory_qlora
    test_lora apps.adamw8bit apps.pipeline apps.qlora)

# ThreadSanitizer runs these alone, as patterns: ranks that meet, the transport's and the savers' own threads, teams,
# the tokenizer's threads. What computes on one thread is AddressSanitizer's.
set(weft_thread
    "^mesh[.]test_(axes|border|comm|comm_faults|comm_groups|comm_ledger|comm_mismatch|comm_rows|computed|distribute)$"
    "^mesh[.]test_(exchange_stress|failure_detector|failure_detector_meet|gradients|job_compare|last_word|launch|rendezvous)$"
    "^mesh[.]test_(progress|recorder|redistribute|sharing|sum_bf16|sums|topology)$"
    "^kernels[.]test_(linear_joined|team)$"
    "^core[.]test_(memory|ranges|trace)$"
    "^nn[.]test_(fan_in|module)$"
    "^parallel[.]test_(alike|anomaly|borders|checkpoint|checkpoint_folder|checkpoint_kept|checkpoint_ranks)$"
    "^parallel[.]test_(checkpoint_slow|exact|failures|held_parts|main|materialize|overlap|pipeline|pipeline_anomaly)$"
    "^parallel[.]test_(pipeline_errors|recovery|replicas|strategies|units)$"
    "^differential[.]" "^nccl[.]test_(comm_groups_nccl|nccl_faults|nccl_train)$"
    "^apps[.](logits_alike|services|test_recorder_diff|witness)$"
    "^nn[.]test_dataset_order$" "^text[.]test_tokenizer$")

# weft_runs_elsewhere(TEST OUT): whether this build leaves a test, "folder.name", to another one.
function(weft_runs_elsewhere test out)
    string(REGEX REPLACE "^[a-z]+[.]" "" name ${test})
    set(${out} NO PARENT_SCOPE)
    if(WEFT_SANITIZE MATCHES "address")
        if(name IN_LIST weft_not_address OR test IN_LIST weft_not_address)
            set(${out} YES PARENT_SCOPE)
        endif()
    elseif(WEFT_SANITIZE MATCHES "thread")
        set(${out} YES PARENT_SCOPE)
        foreach(pattern IN LISTS weft_thread)
            if(test MATCHES "${pattern}")
                set(${out} NO PARENT_SCOPE)
            endif()
        endforeach()
    endif()
endfunction()

# weft_leave_out(TEST [TARGET]): where another build runs it, the test has the label "elsewhere", and its program is
# not built by itself.
function(weft_leave_out test)
    weft_runs_elsewhere(${test} elsewhere)
    if(elsewhere)
        set_property(TEST ${test} APPEND PROPERTY LABELS elsewhere)
        if(ARGC GREATER 1)
            set_target_properties(${ARGV1} PROPERTIES EXCLUDE_FROM_ALL TRUE)
        endif()
    endif()
endfunction()
