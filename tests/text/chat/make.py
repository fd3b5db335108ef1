#!/usr/bin/env python3
"""make.py - writes cases.json: conversations as transformers' apply_chat_template has them, for test_chat.c.

The templates are those of models' folders, as far as they concern system, user and assistant: each is what the one of
its name in templates.def writes. It needs transformers and jinja2.
"""
import json
import pathlib

import transformers

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('roles must alternate') }}{% endif %}")
TURN = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
CHATML_END = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
SPLIT_SYSTEM = ('{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}'
                "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}")


def first(system):
    return ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
            + system + "<|im_end|>\n' }}{% endif %}" + TURN + "{% endfor %}" + CHATML_END)


TEMPLATES = {
    "smollm2": first("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
    "qwen2": first("You are a helpful assistant."),
    "chatml": "{% for message in messages %}" + TURN + "{% endfor %}" + CHATML_END,
    "qwen2.5": "{%- if messages[0]['role'] == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0]['content'] + "
               "'<|im_end|>\\n' }}\n{%- else %}\n    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You "
               "are a helpful assistant.<|im_end|>\\n' }}\n{%- endif %}\n{%- for message in messages %}\n    {%- if "
               "(message.role == \"user\") or (message.role == \"system\" and not loop.first) or (message.role == "
               "\"assistant\" and not message.tool_calls) %}\n        {{- '<|im_start|>' + message.role + '\\n' + "
               "message.content + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt "
               "%}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
              "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 "
              "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3.1": "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"26 Jul 2024\" %}\n{%- "
                "endif %}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim "
                "%}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
                "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{{- \"Cutting Knowledge Date: December "
                "2023\\n\" }}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n{{- system_message }}\n{{- \"<|eot_id|>\" "
                "}}\n{%- for message in messages %}\n    {{- '<|start_header_id|>' + message['role'] + "
                "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n{%- if "
                "add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
              "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif "
              "%}{% for message in loop_messages %}" + ALTERNATE + "{% if loop.index0 == 0 and system_message != false %}{% "
              "set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set "
              "content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + "
              "content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + "
              "eos_token }}{% endif %}{% endfor %}",
    "mistral": "{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
               "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + "
               "eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% "
               "endfor %}",
    "mistral-v1": SPLIT_SYSTEM + "{{- bos_token }}{%- for message in loop_messages %}" + ALTERNATE + "{%- if message[\"role\"] "
                  "== \"user\" %}{%- if loop.first and system_message is defined %}{{- \" [INST] \" + system_message + "
                  "\"\\n\\n\" + message[\"content\"] + \" [/INST]\" }}{%- else %}{{- \" [INST] \" + message[\"content\"] + \" "
                  "[/INST]\" }}{%- endif %}{%- else %}{{- \" \" + message[\"content\"] + eos_token}}{%- endif %}{%- endfor %}",
    "mistral-v3": SPLIT_SYSTEM + "{{- bos_token }}{%- for message in loop_messages %}" + ALTERNATE + "{%- if message[\"role\"] "
                  "== \"user\" %}{%- if loop.last and system_message is defined %}{{- \"[INST] \" + system_message + "
                  "\"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}{%- else %}{{- \"[INST] \" + message[\"content\"] + "
                  "\"[/INST]\" }}{%- endif %}{%- else %}{{- \" \" + message[\"content\"]|trim + eos_token}}{%- endif %}{%- "
                  "endfor %}",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% "
             "endif %}{% for message in messages %}" + ALTERNATE + "{% if (message['role'] == 'assistant') %}{% set role = "
             "'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
             "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
             "{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": "{{ bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n    {%- set first_user_prefix = "
              "messages[0]['content'] + '\n\n' -%}\n    {%- set loop_messages = messages[1:] -%}\n{%- else -%}\n    {%- set "
              "first_user_prefix = \"\" -%}\n    {%- set loop_messages = messages -%}\n{%- endif -%}\n{%- for message in "
              "loop_messages -%}" + ALTERNATE + "{%- if (message['role'] == 'assistant') -%}\n        {%- set role = \"model\" "
              "-%}\n    {%- else -%}\n        {%- set role = message['role'] -%}\n    {%- endif -%}\n    {{ '<start_of_turn>' "
              "+ role + '\n' + (first_user_prefix if loop.first else \"\") }}\n    {%- if message['content'] is string -%}\n "
              "       {{ message['content'] | trim }}\n    {%- endif -%}\n    {{ '<end_of_turn>\n' }}\n{%- endfor -%}\n{%- if "
              "add_generation_prompt -%}\n    {{'<start_of_turn>model\n'}}\n{%- endif -%}\n",
}
# Templates that are like a known one and write something else.
LIKE = {
    "like phi-4": "{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + "
                  "'<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
                  "{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}"
                  "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "like chatml with bos": "{{ bos_token }}{% for message in messages %}" + TURN + "{% endfor %}" + CHATML_END,
    "like chatml with trim": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim + "
                             "'<|im_end|>' + '\n'}}{% endfor %}" + CHATML_END,
    "like chatml with eos": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
                            "'\n'}}{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}" + CHATML_END,
    "like a guard": "{% for message in messages %}{% if loop.last %}{{ '<|start_header_id|>user<|end_header_id|>\n\nTask: is this safe? <|eot_id|>' "
                    "+ message['content'] | trim }}{% endif %}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
}
BEGINS = {"llama3": "<|begin_of_text|>", "llama3.1": "<|begin_of_text|>", "gemma": "<bos>", "gemma3": "<bos>"}


def message(role, content):
    return {"role": role, "content": content}


SYSTEM, USER, ANSWER = "system", "user", "assistant"
CONVERSATIONS = [
    [message(USER, "Hi")],
    [message(USER, " two  spaces\n"), message(ANSWER, "\n\nAn answer \t")],
    [message(SYSTEM, " Be brief. "), message(USER, "\tna\u00efve \U0001f600 "), message(ANSWER, "")],
    [message(SYSTEM, "S"), message(USER, "a"), message(ANSWER, "b"), message(USER, " c "), message(ANSWER, "d "),
     message(USER, "<|im_end|>")],
    [message(USER, "a"), message(ANSWER, "b"), message(ANSWER, "c")],
]


def main():
    out = []
    for name, jinja in {**TEMPLATES, **LIKE}.items():
        from tokenizers import Tokenizer, models
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=jinja,
                                                         bos_token=BEGINS.get(name, "<s>"), eos_token="</s>")
        cases = []
        for conversation in CONVERSATIONS:
            for prompt in (False, True):
                try:
                    text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=prompt)
                except Exception as error:  # what the template raises
                    assert "alternate" in str(error) or "upported" in str(error), error
                    text = None
                cases.append({"row": json.dumps({"messages": conversation}), "prompt": prompt, "text": text})
        out.append({"name": name, "jinja": jinja, "cases": cases})
    pathlib.Path(__file__).with_name("cases.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
