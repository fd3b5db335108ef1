# tests/sanitizers.cmake - which build runs a test. A sanitized one runs those in which there is something for it to see
# that no other of its tests shows. The plain build runs all; where sanitized builds run beside it (WEFT_REST), the rest alone.

# AddressSanitizer with UndefinedBehaviorSanitizer runs all but these, and those with the label "heavy".
set(weft_not_address
    # thousands of checkpoints that fail, tear or are damaged, and of schedules
    test_checkpoint_faults test_checkpoint_crash test_checkpoint_damage test_schedules_proved
    # the other two over NCCL leave little to see for
    test_comm_nccl
    # sums, counts and formulas over code that other tests run
    test_inexact test_collectives test_math test_rule test_plan_run test_placement test_placement_packed test_reference
    test_steady test_shard_traffic test_schedules_mutants test_plan_pipeline test_profile test_numerics_portable
    test_any_dp test_bf16 test_dtype test_muon_ranks test_exact
    # recomputed blocks, dropout and groups of parameters are run by apps.witness and parallel.test_pipeline, rows of unequal
    # length by apps.cli_data
    test_recompute test_dropout test_parts_of_step test_masked
    # the search's plans, one by one: apps.search runs the same lines
    test_search_memory
    # the emulated GPU is run by cuda.test_cuda_ops and cuda.test_cuda_graph, the program by apps.cli_runs
    cuda.gpt_train test_cuda_math test_cuda_graph_train test_cuda_train test_cuda_attention
    # plans are run by parallel.test_plan, parallel.test_search_timed, apps.plan_advice and apps.chakra
    apps.cli_plans
    # programs that hwloc leaves memory in; parallel.test_output runs the writer
    apps.planted_files
    # the loops of attention are run by kernels.test_attention_simd, a cache by apps.gpt_generate and
    # apps.test_generate_memory; these compare bits of many shapes, which the plain build's do
    test_cache test_attention_cached test_attention_bf16
    # adapters, stages and narrow storage are run by parallel.test_pipeline, apps.lora and parallel.test_no_memory_qlora
    test_lora apps.adamw8bit apps.pipeline apps.qlora)

# ThreadSanitizer runs these alone, as patterns: ranks that meet, the transport's and the savers' own threads, thread pools,
# the tokenizer's threads. What computes on one thread is AddressSanitizer's.
set(weft_thread
    "^mesh[.]test_(axes|border|comm|comm_faults|comm_groups|comm_counters|comm_mismatch|comm_rows|computed|distribute)$"
    "^mesh[.]test_(exchange_stress|failure_detector|failure_detector_meet|gradients|job_compare|last_word|launch|rendezvous)$"
    "^mesh[.]test_(progress|recorder|redistribute|sharing|sum_bf16|sums|topology)$"
    "^kernels[.]test_(linear_joined|thread_pool)$"
    "^core[.]test_(memory|ranges|trace)$"
    "^nn[.]test_(fan_in|module)$"
    "^parallel[.]test_(alike|anomaly|borders|checkpoint|checkpoint_folder|checkpoint_kept|checkpoint_ranks)$"
    "^parallel[.]test_(checkpoint_slow|failures|held_parts|main|materialize|overlap|pipeline|pipeline_anomaly)$"
    "^parallel[.]test_(pipeline_errors|recovery|replicas|strategies|units)$"
    "^differential[.]" "^nccl[.]test_(comm_groups_nccl|nccl_faults|nccl_train)$"
    "^apps[.](logits_alike|services|test_recorder_diff|witness)$"
    "^nn[.]test_dataset_order$" "^text[.]test_tokenizer$")

# The rest is what AddressSanitizer's build does not run, what it runs less of (a source that asks for UNDER_SANITIZER, a
# script with --sanitized), and these, as patterns: numbers that an optimiser could change.
set(weft_plain
    "^(core|kernels|differential)[.]" "^apps[.](witness|logits_alike)$"
    "^mesh[.]test_(computed|gradients|rounded|sum_bf16|sums)$"
    "^nn[.]test_(dropout|loss|optimizer|recipe_numbers)$"
    "^parallel[.]test_(numerics|strategies)$"
    # their programs are those of hosts.mpi and nccl.processes
    "^mesh[.]test_comm(_groups)?$" "^nccl[.]test_nccl_faults$")

# Programs and plugins that no test of a sanitized build runs; and those that none of ThreadSanitizer's runs.
set(weft_idle bench only_local gpt_train_faulty mpi_ranks layouts encode_strings sample_rows quickstart weft_nccl
    nccl_emulator_cuda weft_nccl_emulated_cuda file_call_faults)
set(weft_thread_idle ckpt gpt_data gpt_diff gpt_eval gpt_export gpt_generate mesh_info schedule weft_command chakra_read
    weft_mpi cuda_emulator)

# weft_leave_out_programs(): these are not built by themselves.
function(weft_leave_out_programs)
    if(WEFT_SANITIZE MATCHES "thread")
        list(APPEND weft_idle ${weft_thread_idle})
    elseif(NOT WEFT_SANITIZE)
        return()
    endif()
    foreach(program ${weft_idle})
        if(TARGET ${program})
            set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL TRUE)
        endif()
    endforeach()
endfunction()

# weft_runs_elsewhere(TEST SOURCE OUT): whether this build leaves a test, "folder.name", to another one.
function(weft_runs_elsewhere test source out)
    string(REGEX REPLACE "^[a-z]+[.]" "" name ${test})
    get_property(labels TEST ${test} PROPERTY LABELS)
    set(address YES)
    if(name IN_LIST weft_not_address OR test IN_LIST weft_not_address OR labels MATCHES "heavy|gpu")
        set(address NO)
    endif()
    set(here YES)
    if(WEFT_SANITIZE MATCHES "address")
        set(here ${address})
    elseif(WEFT_SANITIZE MATCHES "thread")
        set(here NO)
        foreach(pattern IN LISTS weft_thread)
            if(test MATCHES "${pattern}")
                set(here YES)
            endif()
        endforeach()
    elseif(WEFT_REST AND address)
        set(here NO)
        foreach(pattern IN LISTS weft_plain)
            if(test MATCHES "${pattern}")
                set(here YES)
            endif()
        endforeach()
        if(source)
            file(STRINGS ${source} less REGEX "UNDER_SANITIZER|--sanitized" LIMIT_COUNT 1)
            if(less)
                set(here YES)
            endif()
        endif()
    endif()
    if(here)
        set(${out} NO PARENT_SCOPE)
    else()
        set(${out} YES PARENT_SCOPE)
    endif()
endfunction()

# weft_leave_out(TEST SOURCE [TARGET]): where another build runs it, the test has the label "elsewhere", and its program is
# not built by itself.
function(weft_leave_out test source)
    weft_runs_elsewhere(${test} "${source}" elsewhere)
    if(elsewhere)
        set_property(TEST ${test} APPEND PROPERTY LABELS elsewhere)
        if(ARGC GREATER 2)
            set_target_properties(${ARGV2} PROPERTIES EXCLUDE_FROM_ALL TRUE)
        endif()
    endif()
endfunction()
