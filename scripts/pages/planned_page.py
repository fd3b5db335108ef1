"""planned_page.py - what scripts share whose tables of plans stand on a page of docs: the part between two marks of it is
written anew, or, with --check, compared, and status 1 says that it is another one."""
import sys


def main(doc, page, begin, end, tables):
    """SCRIPT GPT_TRAIN [--check]; tables(gpt_train) is the text from one mark to the other, both included."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(doc.strip()))
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(doc.strip())
    text = page.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    now = before + tables(sys.argv[1]) + after
    if sys.argv[2:] and now != text:
        script = sys.argv[0].rpartition("/")[2]
        sys.exit(f"{page.name} says something else than the plans: run scripts/pages/{script} {sys.argv[1]}, and look whether its "
                 f"words are still true")
    page.write_text(now, encoding="utf-8")
