"""writers.py - which calls open files to write, or rename them, and who may make them: for lint.py outputs."""
import fnmatch
import re

# Who opens files to write or renames them by himself, and why.
WRITERS = {
    "core/files/*": "this is the writer",
    "tests/bench/checkpoint.c": "writes into a folder of its own, which mkdtemp makes",
    "parallel/report/event_file.c": "rows are appended; the file is always a new one (O_EXCL)",
    "parallel/report/row_file.c": "rows are appended",
    "core/files/prepare.c": "opens what is there to see that it can be written, and changes nothing",
    "parallel/checkpoint/folder_lock.c": "a lock stays the same file; no link is followed (O_NOFOLLOW)",
    "apps/program.c": "/dev/null in the place of a descriptor that is missing",
    "apps/python/bridge/run.c": "/dev/null as the console of a run that is quiet",
    "tests/bench/mpi.c": "/dev/null as a child's input",
    "apps/tools/export_files.c": "files that are whole go from one folder to another",
    "apps/tools/export_folder.c": "folders that are whole are exchanged",
    "mesh/cluster/in_child.c": "/dev/null as a child's streams",
    "mesh/health/private_names.c": "a lock stays the same file, in the user's own folder; no link is followed (O_NOFOLLOW)",
    "mesh/health/recorder_file.c": "written by a signal, with system calls alone; always a new file (O_EXCL)",
}

# A call, with its arguments up to a bracket that closes; what a table of calls has is written with . or -> before it.
WRITING_CALL = re.compile(r"(?<![\w.>])(fopen|fopen64|freopen|fdopen|open|openat|open64|creat|mkstemp|mkostemp|mkdtemp|tmpfile|"
                          r"json_dump_file|rename|renameat|renameat2)\s*\(((?:[^()]|\([^()]*\))*)\)")
WRITING_FLAG = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TRUNC|APPEND)\b")


def writes(call, arguments):
    """Whether a call opens a file to write, or gives one another name. Of an fdopen the descriptor's open decides."""
    if call in ("fopen", "fopen64", "freopen"):
        return not re.search(r',\s*"r[be]*"', arguments)
    if call in ("open", "openat", "open64"):
        return bool(WRITING_FLAG.search(arguments))
    return call != "fdopen"


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def outputs(root, files):
    """Yields (path, line, finding) of calls in C files that are none of WRITERS."""
    for path in files:
        name = path.relative_to(root).as_posix()
        if any(fnmatch.fnmatch(name, writer) for writer in WRITERS):
            continue
        text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, path.read_text(encoding="utf-8"), flags=re.S)
        for match in WRITING_CALL.finditer(text):
            before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            if writes(*match.groups()) and not re.search(r"\b(int|wf_status|bool|static)\s+\*?$", before):
                yield path, text.count("\n", 0, match.start()) + 1, \
                    f"{match[1]}: files are written by core/files/output.h (or a reason stands in WRITERS)"
