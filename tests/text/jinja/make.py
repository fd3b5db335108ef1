#!/usr/bin/env python3
"""make.py [OUT TEMPLATE..] - records what transformers' chat templates render, for test_jinja.c.

Without arguments: cases.json, of the templates in constructs.py. With them: OUT, of conversations in files of Jinja. It
needs transformers and jinja2, and the time of day is that of SOURCE_DATE_EPOCH=1750000000 in UTC.
"""
import datetime
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).parent
EPOCH = 1750000000
os.environ["TZ"] = "UTC"
time.tzset()


def transformers_utils():
    from transformers.utils import chat_template_utils

    class Then(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(EPOCH, tz)

    chat_template_utils.datetime = Then
    return chat_template_utils


def case(utils, template, variables):
    """A case: the text, and the spans of generation blocks in bytes; or that transformers raises."""
    names = dict(variables)
    messages = names.pop("messages", [])
    try:
        texts, spans = utils.render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, tools=names.pop("tools", None),
            documents=names.pop("documents", None), add_generation_prompt=names.pop("add_generation_prompt", False), **names)
    except Exception as error:
        return {"variables": variables, "error": True, "why": f"{type(error).__name__}: {error}"[:200]}
    text = texts[0]
    text.encode()  # lone surrogates
    at = lambda n: len(text[:n].encode())
    return {"variables": variables, "text": text, "spans": [[at(a), at(b)] for a, b in spans[0]]}


def as_rendered(variables):
    """Variables as the template gets them: transformers copies reasoning to the other name of it, and tools are none."""
    out = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
    messages = []
    for m in out.get("messages", []):
        reasoning = next((m[k] for k in ("reasoning_content", "thinking", "reasoning") if m.get(k) is not None), None)
        messages.append(m if reasoning is None else {"thinking": reasoning, **m, "reasoning_content": reasoning})
    return {**out, "messages": messages}


def cases(utils, template, all_variables):
    out = []
    for variables in all_variables:
        one = case(utils, template, variables)
        one["variables"] = as_rendered(variables)
        out.append(one)
    return out


CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2, "detail": None, "f": 1.5, "on": True}}}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Tells the \"weather\" <now> & later.\nTwo lines.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "A city's name"},
        "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
        "detail": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}}, "required": ["city"]},
    "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}}]


def m(role, content=None, **more):
    return {"role": role, **({} if content is None else {"content": content}), **more}


def conversations():
    turns = [
        [m("user", "Hi")],
        [m("user", " two  spaces\n"), m("assistant", "\n\nAn answer \t")],
        [m("system", " Be brief. "), m("user", "\tnaïve \U0001f600 "), m("assistant", "")],
        [m("system", "S"), m("user", "a"), m("assistant", "b"), m("user", " c "), m("assistant", "d "), m("user", "<|im_end|>")],
        [m("user", "a"), m("assistant", "b"), m("assistant", "c")],
        [m("developer", "D"), m("user", "a"), m("assistant", "b")],
        [m("user", "1+1?"), m("assistant", "2", reasoning_content="Easy: it's \"2\"\n"), m("user", "2+2?"),
         m("assistant", "4", reasoning_content="Again.")],
        [m("user", "x"), m("assistant", "<think>\nhm\n</think>\n\nyes"), m("user", "y")],
        [m("user", [{"type": "text", "text": "part"}, {"type": "text", "text": " two"}]), m("assistant", "ok")],
        [m("user", "Weather?"), m("assistant", "", tool_calls=[CALL]), m("tool", "{\"sun\": true}", name="weather", tool_call_id="abcdefghi"),
         m("assistant", "Sunny."), m("user", "Thanks"), m("assistant", "Any time")],
        [m("system", "Use tools"), m("user", "Two"), m("assistant", None, tool_calls=[{**CALL, "id": "abcdefghi"}, {**CALL, "id": "ABCDEFGHI"}]),
         m("tool", "rain", name="weather", tool_call_id="abcdefghi"), m("tool", "snow", name="weather", tool_call_id="ABCDEFGHI")],
        [m("user", "\u3000wide\u00a0"), m("assistant", "r\r\nn"), m("user", "'q' \"d\" \\b")],
        [],
    ]
    base = {"bos_token": "<s>", "eos_token": "</s>"}
    for messages in turns:
        for prompt in (False, True):
            yield {**base, "messages": messages, "add_generation_prompt": prompt}
        if any("tool_calls" in x for x in messages):
            yield {**base, "messages": messages, "tools": TOOLS, "add_generation_prompt": True}
    yield {**base, "messages": turns[3], "tools": TOOLS}
    yield {**base, "messages": turns[6], "enable_thinking": False, "add_generation_prompt": True}
    yield {**base, "messages": turns[6], "enable_thinking": True, "add_generation_prompt": True}
    yield {"messages": turns[3], "documents": [{"title": "T", "text": "Text"}], "add_generation_prompt": True}


def main():
    utils = transformers_utils()
    if len(sys.argv) > 1:
        out = [{"name": pathlib.Path(f).name, "template": pathlib.Path(f).read_text(), "cases": cases(utils, pathlib.Path(f).read_text(), conversations())}
               for f in sys.argv[2:]]
        pathlib.Path(sys.argv[1]).write_text(json.dumps(out, ensure_ascii=False))
        return
    sys.path.insert(0, str(HERE))
    import constructs
    out = [{"name": f"{i}", "template": template, "cases": cases(utils, template, variables or [{}])}
           for i, (template, variables) in enumerate(constructs.all(conversations))]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in out)
    (HERE / "cases.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
