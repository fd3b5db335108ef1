"""vocabulary.py - the table of the lint rule of that name."""
import re

# Words of our own, and the field's word to say instead. A pattern matches whole words, in any case.
VOCABULARY = {
    r"slopes?": "gradient, _backward",
    r"pok(e|es|ed|ing)": "wake",
    r"tellers?": "reporter",
    r"keepers?": "fd holder",
    r"seatings?": "rank map",
    r"the watch(?=\W)(?!-)|wf_watch_\w+|wf_world_watch": "failure detector, wf_detector",
    r"last words": "crash notice",
    r"moods?": "noise",
    r"(go|goes|going|went) home": "spilled partial sums",
    r"at home": "spilled, or the owner",
    r"(asks?|asked|asking) memory|memory is asked": "prefetch",
    r"(past|around|beside) the caches?": "non-temporal store",
    r"(run|runs|ran|running) again (in|inside|for) (backward|gradients?)": "recompute",
    r"shut(s|ting)? the door": "close",
    r"(exposed|packed) collectives?": "direct collective, staged collective",
    r"(?<!\")strips?(?!\(|\\?\")": "micro-panel",  # "Strip" is a decoder of tokenizer.json
    r"wf_dim_split": "wf_dim_chunked",
    r"wf_node_add": "wf_partial_add",
    r"WF_LEAF_\w+": "WF_CHUNKS_x: a leaf is autograd's",
    r"(reduction|sum) leaf|leaf of (a|the) sum|leaves of (a|the) sum": "reduction chunk",
    r"wf_teams?\w*": "wf_thread_pool",
    r"wf_journal\w*": "wf_oplog",
    r"wf_ledger\w*": "wf_comm_counters",
    r"wf_muster\w*|musters?": "process registry, wf_registry",
    r"wf_verdict\w*|culprits?": "failure cause, failed rank",
    r"(\w+_)?exam(_\w+)?": "evaluation requests",
    r"guests?": "pending connection, client",
    r"(\w+_)?farewell(_\w+)?": "goodbye",
    r"(\w+_)?first_lines": "startup banner",
    r"(wf_|gemm_)?skinny|gemm_few\w*": "GEMV, gemm_small_m",
}

BANNED = [(re.compile(rf"(?<![\w-])(?:{word})(?![\w-])", re.I), instead) for word, instead in VOCABULARY.items()]
# A line in which this finds nothing has none of them: one search in place of many.
ANY_BANNED = re.compile(rf"(?<![\w-])(?:{'|'.join(VOCABULARY)})(?![\w-])", re.I)
