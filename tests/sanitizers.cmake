# tests/sanitizers.cmake - weft_elsewhere: tests that a sanitizer's build leaves out, since what it looks at in them is
# looked at in others. Every one is run by the plain build.
set(weft_elsewhere "")
if(WEFT_SANITIZE MATCHES "address")
    # Sums, counts and formulas over code that other tests run.
    list(APPEND weft_elsewhere test_inexact test_collectives test_math test_rule test_plan_run test_placement
        test_placement_packed test_reference test_steady test_shard_traffic test_schedules_mutants test_plan_pipeline
        test_profile test_numerics_portable)
    # The search's plans, one by one; apps.search runs the same lines.
    list(APPEND weft_elsewhere test_search_memory)
    # The emulated GPU is run by cuda.test_cuda_train and cuda.test_cuda_graph_train, the program by apps.cli_runs.
    list(APPEND weft_elsewhere cuda.gpt_train)
elseif(WEFT_SANITIZE MATCHES "thread")
    # What computes on one thread, or on a team that kernels.test_team covers.
    list(APPEND weft_elsewhere test_ops_a test_ops_a_parts test_ops_a_rules test_ops_b test_ops_b_parts test_ops_b_rules
        test_ops_computed test_ops_dims test_ops_in_place test_ops_products test_math test_gemm test_gemm_bf16
        test_gemm_skinny test_simd_exact test_simd_sums test_random_simd test_fused test_attention_bf16
        test_attention_cached test_attention_simd test_placement test_placement_packed test_rank_map test_safetensors
        test_index test_numerics_portable test_schedules test_schedules_mutants test_vocabulary test_vocabulary_json)
    # Other numbers, counts and formulas in the exchanges of test_exact, test_strategies and test_redistribute.
    list(APPEND weft_elsewhere test_bf16 test_dtype test_recompute test_muon_ranks test_inexact test_plan_run
        test_plan_pipeline test_profile test_freeze test_collectives test_shard_traffic test_steady test_reference
        test_rule test_loss test_recipe test_recipe_numbers)
    # Programs whose threads are those of apps.cli_runs, apps.witness (training), apps.gpt_eval and apps.logits_alike
    # (generation), parallel.test_pipeline and parallel.test_lora; and what they plan, refuse and write, on one thread.
    list(APPEND weft_elsewhere apps.cli apps.cli_data apps.cli_plans apps.cli_files apps.lora apps.qlora apps.pipeline
        apps.plan_advice apps.search test_search_memory apps.gpt_generate apps.mesh_info apps.schedule apps.weft)
endif()
