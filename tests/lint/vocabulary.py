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
    r"(wf_|gemm_)?skinny|gemm_few\w*|wf_gemm_is_few|wf_few_\w+|\w+_of_few": "GEMV, gemm_small_m, wf_block_x",
    # Names of one's own: a word alone may be plain English, and is left to prose.py.
    r"wf_place_\w+|WF_PLACE_\w+": "wf_placement_x",
    r"wf_(?!gemm_in_|op_in_)\w+_places?(_(of|at|piece|acts))?|\w+_place(_axis)?(?=[ *]+\w+[;,)=])|places?_(of|count|room|key|state|at|in)":
        "location, slot, index, offset, position, coordinates: one each",
    r"(find|free|take|add|open|close|put|check|read|next|push)_places?|(?<=->)places?|(?<=\s\.)place(?= = )|struct place|n_places?":
        "location, slot, index, offset, position, coordinates: one each",
    r"(find|begin|pack_for|cut_for|go)_homes?|(?<=->)home": "owner, owning rank",
    r"(?!WEFT)\w*_?tells?_\w+|\w+_tells?|\w+_told|told_\w+|static \w+ tell(?=\()|bool told": "report_, warn_, log_",
    r"(self|row|figure)\W+verdicts?": "finding, failure cause",
    r"spell_\w+|\w+_spell": "write_, _signature",
    r"(?!left_)\w+(?<!left)_behind(_\w+)?|behind_\w+|(?<=->)behind": "after",
    r"wf_(?!par_)\w+_again|(?<=->)again(?=\[)|(poll|walk|run|make)_again|AGAIN_MS": "recompute, repeat, restart, retry",
    r"wf_\w+_apart|(check|is|comes)_apart|(?<=->)apart": "unreduced, disjoint, stride",
    r"PART_TURNS|TURNS_NEIGHBOURS|turns_as\w*|\w+_turned": "rotates, transposed",
    r"data_sets?": "dataset",
    r"deputies|(wf_)?deputy_\w+": "backup coordinator",
    r"\w*hand_over": "gather to rank 0",
    r"wf_crews?\w*": "thread pool",
}


def needed(pattern):
    """What a match contains, in lower case, of each alternative of a pattern: its longest run of letters outside of groups.
    To look for that takes a fiftieth of the time that the pattern takes."""
    depth, texts = 0, [""]
    for token in re.findall(r"\\.|\[[^]]*\]|.", pattern):
        depth += (token == "(") - (token == ")")
        if token in "?*":
            texts[-1] = texts[-1][:-1] + "\0"  # what comes before need not be there
        elif depth == 0 and token == "|":
            texts.append("")
        else:
            texts[-1] += token if depth == 0 and re.fullmatch(r"[\w ]", token) else "\0"
    return [max(text.lower().split("\0"), key=len) for text in texts]


BANNED = [(needed(word), re.compile(rf"(?<![\w-])(?:{word})(?![\w-])", re.I), instead) for word, instead in VOCABULARY.items()]
