"""constructs.py - templates of our own with each construct that chat templates use, for make.py."""

EXPRESSIONS = r"""
1 + 2 * 3 ** 2 - 7 // 2 % 3
-7 // 2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 // -2 ~ ' ' ~ 7 % -3
7 / 2 ~ ' ' ~ 8 / 2 ~ ' ' ~ 2 ** -1 ~ ' ' ~ 7.5 // 2 ~ ' ' ~ -7.5 % 2
1e16 ~ ' ' ~ 1.0e-5 ~ ' ' ~ 0.1 + 0.2 ~ ' ' ~ 123456789.123 ~ ' ' ~ 1e300 * 1e10 ~ ' ' ~ 100.0
1_000 + 0
not 1 == 2 and 3 > 2 or false
1 < 2 < 3
3 > 2 > 2
'a' < 'b' and 'B' < 'a'
[1, 2] < [1, 3]
'b' in 'abc' and 'd' not in 'abc' and 1 in [1] and 'k' in {'k': 0}
1 == 1.0 and true == 1 and 'a' == "a" and [1, [2]] == [1.0, [2]] and (1,) != [1]
none is none and missing is undefined and x is defined and x is not none
x is string and n is number and n is integer and not n is float and 1.5 is float and d is mapping and l is sequence and l is iterable
true is boolean and false is false and not true is false and 1 is not boolean
d is sequence ~ ' ' ~ missing is sequence ~ ' ' ~ missing is iterable ~ ' ' ~ none is iterable ~ ' ' ~ n is iterable ~ ' ' ~ d.items() is sequence
n is even ~ ' ' ~ n is odd ~ ' ' ~ n is divisibleby 3 ~ ' ' ~ n is divisibleby(5)
3 is eq 3 and 3 is equalto(3) and 3 is ne 4 and 3 is lt 4 and 3 is ge 3 and 'a' is in 'abc' and 2 is in [1, 2]
x if n else 'no'
(x if none) ~ '|'
'a' if false else 'b' if false else 'c'
none or 'x' or 'y'
'' and 'x' or 0
missing or 'fallback'
missing ~ '|' ~ none ~ '|' ~ true ~ '|' ~ [missing]
'tab\t nl\n q\' \x41 \u00e9 \U0001f600 \q \\ \101'
"a" 'b' "c"
x[0] ~ x[-1] ~ x[1:3] ~ x[::-1] ~ x[-3:] ~ x[:100] ~ x[5:2] ~ x[::2]
'naïve 東京 😀'[2] ~ 'naïve 東京 😀'[-1] ~ 'naïve 東京 😀'[2:8] ~ 'naïve'|length
l[0] ~ l[-1] ~ l[1:] ~ l[:-1] ~ l[::-1] ~ l[-100:100]
l[99] is defined ~ x[99] is defined ~ d['zz'] is defined ~ d.zz is defined ~ n.foo is defined
(1, 2) ~ (1,) ~ () ~ [] ~ {} ~ (1)
[1, 'a"b', "a'b", "a'\"b", none, true, 1.5, {'k': [1]}, 'é\n\t\x00\u200b\U0001f600 \x7f']
{'a': 1, 'b': {'c': [1, 2]}, 1: 'x', none: 2, true: 3}
d.items() ~ d.keys() ~ d.values()
d.get('a') ~ d.get('zz') ~ d.get('zz', 5) ~ d['a'] ~ d.a
x.strip() ~ '|' ~ '  a b '.strip() ~ '|' ~ 'xxaxx'.strip('x') ~ '|' ~ ' a '.lstrip() ~ '|' ~ ' a '.rstrip() ~ '|' ~ 'abcba'.strip('ab')
'a,b,,c'.split(',') ~ ' a  b '.split() ~ 'a b c'.split(' ', 1) ~ '  a  b  c '.split(none, 1) ~ 'abc'.split('x') ~ ''.split() ~ ''.split(',')
'a,b,c'.rsplit(',', 1) ~ 'a b'.rsplit()
'a</think>b</think>c'.split('</think>')[-1] ~ '<t>a</t>'.split('<t>')[1].split('</t>')[0]
'a\nb\r\nc\n'.splitlines() ~ 'a\nb'.splitlines(true)
x.startswith('He') ~ x.endswith('o') ~ x.startswith(('a', 'H')) ~ x.upper() ~ x.lower() ~ 'aB c-d'.title() ~ 'aB cD'.capitalize()
'aaa'.replace('a', 'b', 2) ~ 'abc'.replace('', '-') ~ 'abc'.find('c') ~ 'é東c'.find('c') ~ 'abc'.find('x') ~ 'abab'.count('ab') ~ ','.join(['a', 'b'])
'{} {} {{}}'.format(1, 'a') ~ '{1}{0}'.format('a', 'b') ~ '%s=%d %%' % ('a', 3) ~ '%s' % 'x' ~ '%s' % [1]
'12'.isdigit() ~ 'a1'.isdigit() ~ ' \n'.isspace() ~ 'abc'.removeprefix('a') ~ 'abc'.removesuffix('c')
l.index(2) ~ l.count(2)
'ab' * 3 ~ [1] * 2 ~ [1] + [2] ~ (1,) + (2,)
x|trim ~ '|' ~ ' a '|trim ~ '|' ~ 'xax'|trim('x') ~ '|' ~ 5|trim ~ '|' ~ none|trim
x|upper ~ x|lower ~ 'aB cD-eF (gh'|title ~ 'aB cD'|capitalize ~ "it's o'neil"|title
x|length ~ l|length ~ d|length ~ l|count ~ missing|length
l|first ~ l|last ~ x|first ~ x|last ~ d|first ~ ([]|first is defined) ~ d|last
l|join(', ') ~ l|join ~ [1, none, 'a', true]|join('-') ~ 'abc'|join('.') ~ [{'a': 1}, {'a': 2}]|join(',', attribute='a')
l|list ~ 'ab'|list ~ d|list ~ (1, 2)|list
l|reverse|list ~ 'abc'|reverse
[3, 1, 2]|sort ~ ['b', 'A', 'c']|sort ~ ['b', 'A']|sort(case_sensitive=true) ~ [3, 1]|sort(reverse=true) ~ [{'a': 2}, {'a': 1}]|sort(attribute='a')
['a', 'A', 'b', 'a']|unique|list ~ [1, 1.0, true, 2]|unique|list
[3, 1, 2]|min ~ [3, 1, 2]|max ~ [1, 2]|sum ~ ['b', 'A']|min
d|dictsort ~ {'b': 1, 'A': 2}|dictsort ~ {'b': 1, 'a': 2}|dictsort(by='value') ~ {'b': 1, 'A': 2}|dictsort(true)
d|items|list ~ missing|items|list
d|tojson ~ l|tojson ~ x|tojson ~ none|tojson ~ true|tojson ~ 1.0|tojson ~ 1e22|tojson
{'a': [1, {'b': none}], 'e': [], 'o': {}, 'é<&>\'"\\/\x01\x7f\u2028😀': '\n\t\r\x08\x0c'}|tojson
{'a': [1, {'b': none}], 'e': [], 'o': {}}|tojson(indent=4)
{'a': [1, {'b': none}], 'e': [], 'o': {}}|tojson(indent=2, separators=(',', ':'))
{'b': [1, 2], 'a': 'é😀'}|tojson(separators=(',', ': '), sort_keys=true, ensure_ascii=true)
{'b': 1}|tojson(indent='\t') ~ {1: 2, none: 3, true: 4, 1.5: 5}|tojson ~ [1]|tojson(indent=0) ~ (1, 2)|tojson
missing|default('x') ~ ''|default('y') ~ ''|default('y', true) ~ none|default('z') ~ none|d('z', boolean=true) ~ missing|default
'a\nb\n\nc'|indent ~ '|' ~ 'a\nb\n\nc'|indent(2, true) ~ '|' ~ 'a\n\nb'|indent(width=1, blank=true) ~ '|' ~ 'a\nb'|indent('> ')
'5'|int ~ ' 7 '|int ~ '4.9'|int ~ 'x'|int ~ 'x'|int(3) ~ 4.9|int ~ -4.9|int ~ none|int ~ true|int ~ '1e3'|int
'5'|float ~ '1.5'|float ~ 'x'|float ~ 3|float ~ 'x'|float(1.5)
n|string ~ l|string ~ none|string ~ 1.0|string ~ -3|abs ~ -1.5|abs
'aab'|replace('a', 'x') ~ 'aab'|replace('a', 'x', 1) ~ 5|replace('5', '6')
[{'a': 1, 'b': 'x'}, {'a': 2}]|map(attribute='a')|list ~ ['a', 'b']|map('upper')|join ~ ['x']|map('replace', 'x', 'y')|list ~ [{'a': {'b': 3}}]|map(attribute='a.b')|list ~ [{'a': 1}, {}]|map(attribute='a', default=0)|list
[{'a': 1}, {'a': 0}, {}]|selectattr('a')|list ~ [{'a': 1}, {'a': 2}]|selectattr('a', 'equalto', 2)|list ~ [{'a': 1}, {}]|selectattr('a', 'defined')|list
[{'a': 1}, {'a': 0}]|rejectattr('a')|list ~ [{'r': 's'}, {'r': 'u'}]|rejectattr('r', '==', 's')|list ~ [1, 0, 2]|select|list ~ [1, 2, 3]|select('odd')|list ~ [1, 2]|reject('equalto', 1)|list ~ ['a', 1]|select('string')|list
(missing|selectattr('x')|list) ~ (none|map('upper')|list) ~ (l|map('string')|first)
(l|select('odd') is iterable) ~ (l|select('odd') is sequence) ~ ('y' if l|select('gt', 100) else 'n') ~ ('y' if [] else 'n')
'<b>'|safe ~ ('<a>'|safe + '<b>') ~ ('<a>' + '<b>'|safe) ~ ('<a>'|safe ~ '<b>') ~ '<a>'|safe|length ~ '"x"'|tojson|safe
range(3)|list ~ range(1, 7, 2)|list ~ range(3, 0, -1)|list ~ range(5)[2] ~ range(5)|length ~ (3 in range(5))
dict(a=1, b=2) ~ dict({'a': 1}, b=2)
namespace(a=1).a ~ (namespace().zz is defined)
strftime_now('%Y-%m-%d %H:%M %b %B %A %j') ~ strftime_now('')
d.a is defined and d.nested.deep == 'v' and d['nested']['deep'] is string
l.0 ~ l.1
x | trim + '!' ~ 'a' + 'b' | upper
(x | trim)[0] ~ x.strip().split('l')[0].upper()
'a' ~ 1 ~ none ~ 1.50 ~ [1] ~ true
{'upper': 1}.zz ~ {'items': 2}['items'] ~ ({'x': 1}.items is callable)
raise_exception('no') if false else 'fine'
messages|length ~ messages
x is none or x is not string
x is not defined or n
not x is string ~ '|'
- n ~ +n ~ -1.5 ~ - -1
n**2 ~ -n**2 ~ 2**0.5
'é' ~ 'É'
loop is defined
"\u00b5m"
'a' 'b'|upper
[l, d]|length
"{{ '{%' }}"
d['nested'].deep|upper
'x' in missing
1 in d
x.nope
missing.x
missing + 'a'
'a' + 1
1 + none
[] | first + 'a'
l.append(1)
d.update({})
d.pop('a')
raise_exception('because')
none|length
l|select('odd')|length
missing()
x()
1 // 0
1 % 0
'a' in 5
5 in 'a'
'a' < 1
none < none
l['a']['b']
undefined_function(1)
x|nofilter
x is notest
{'a': missing}|tojson
d|tojson(bad=1)
x|trim(1)
[1]|sort(attribute='a') ~ [none, 1]|sort
range(1000000)|length
range(1.5)
'%d' % 'a'
'%s %s' % 'a'
'{}'.format()
namespace(_a=1)
x.strip(1)
5.strip()
l|join(5) ~ 5|join
'abc'|first|upper ~ ('' | first is defined)
[[1, 2], [3]]|map('length')|list ~ [[1, 2], [3]]|map('first')|join('+') ~ [[3, 4]]|map(attribute=0)|list ~ [[3, 4]]|map(attribute='1')|list
[1, 2, 3][1:]|join('') ~ ([1, 2, 3] | length - 1)
x|default(none) is none
(1, 2) == (1, 2) and {'a': 1} == {'a': 1.0} and not {'a': 1} == {'a': 2}
true + true ~ true * 3 ~ 1 - true
"%s" % none ~ '%i' % true
d|length > 1 and l|length == 3
'a\\nb' ~ 'a\'b'
{'a': 1}['a'] ~ {'a': 1, 'a': 2}
""".strip("\n").split("\n")

X = {"x": "Hello", "n": 12, "l": [1, 2, 3], "d": {"a": 1, "b": "two", "nested": {"deep": "v"}},
     "messages": [{"role": "user", "content": "Hi"}]}

STATEMENTS = [
    "{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for i in l if i != 2 %}{{ i }}{{ loop.length }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'é東a' %}{{ c }}.{% endfor %}",
    "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{{ loop.index }}{% if j == i %}{% break %}{% endif %}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in l %}{% for j in [] %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}",
    "{% set a = 1 %}{% for i in l %}{{ a }}{% set a = i %}{{ a }}{% endfor %}{{ a }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{% set ns.c = 5 %}{{ ns.c }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (e, f) = [3, 4] %}{{ e + f }}",
    "{% set a.b = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set x.y = 1 %}",
    "{% set t %}  a {{ x }} {% set inner = 1 %}{% endset %}[{{ t }}]{{ inner is defined }}",
    "{% set t | trim | upper %}  a {{ x }} {% endset %}[{{ t }}]",
    "{% if x %}a{% elif n %}b{% else %}c{% endif %}{% if missing %}a{% elif none %}b{% else %}c{% endif %}{% if false %}a{% elif n %}b{% endif %}",
    "{% if true %}{% set y = 3 %}{% endif %}{{ y }}{% if false %}{% set x = 3 %}{% endif %}{{ x }}",
    "{% macro f(a, b='d', c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(a=1, c=3) }}{{ f() }}{{ f('x')|upper }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ later }}{{ x }}{% endmacro %}{% set later = 'L' %}{{ f() }}{% set later = 'M' %}{{ f() }}",
    "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}{{ g is defined }}",
    "{% macro f(x) %}{% set x = x ~ '!' %}{{ x }}{% endmacro %}{{ f('a') }}{{ x }}",
    "{% macro f(a) -%}\n  {{ a }}\n{%- endmacro %}[{{ f(1) }}]",
    "{% filter upper %}a{{ x }}{% endfilter %}{% filter trim | replace('a', 'b') %} a {% endfilter %}",
    "{% generation %}abc{% endgeneration %}é{% for i in l %}{% generation %}{{ i }}{% endgeneration %}|{% endfor %}",
    "a{%- generation -%}  b {% set q = 1 %} {%- endgeneration -%} c{{ q is defined }}",
    "{% for m in messages %}{% if loop.first %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endif %}{% endfor %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}{% raw -%}  a  {%- endraw %}",
    "a{# comment {{ x }} #}b{#- c -#} d {# e\n #}\nf", "  {# x #}\n  {% if true %}\n    a\n  {% endif %}\nb\n",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c", "a  {%+ if true %}  b  {%+ endif %}  c", "{% if true +%}\n a{% endif %}",
    "{{ x }}\n{{ x }}\n\n", "{{- x -}}\n  a", "  {{ x }}", "\n\n  {% set a = 1 %}\n\n x", "a\r\nb{% if true %}\r\nc{% endif %}\r\n",
    "\u00a0{%- if true %}\u2003b{% endif -%}\u3000c", "{% if true %}{% endif %}  \n  {% if true %}x{% endif %}",
    "{% if x %}{{ '{{' }}{% endif %}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}}}}", "{{ {'a': 1}\n['a'] }}",
    "{%if x%}a{%endif%}{{x}}{{-x-}}{{1-1}}{{-1}}", "{{ x\n}}{% set a =\n [1,\n2,] %}{{ a }}{{ (1,) }}{{ f is defined }}",
    "{% for i in [3, 1]|sort %}{{ i }}{% endfor %}{% for i in l|select('odd') %}{{ i }}{{ loop.last }}{% endfor %}",
    "{% set g = l|select('odd') %}{{ g|list }}{{ g|list }}{{ g|first is defined }}",
    "{% for i in l %}{{ loop.changed(i > 1) }}{% endfor %}",
    "{% for i in d %}{% for j in d[i] %}{{ j }}{% endfor %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in l %}{{ i }}", "{% if x %}a", "{{ x", "{% set %}", "{{ }}", "{% foo %}",
    "{% endif %}", "{{ 'a }}", "{{ (1 }}", "{{ x] }}", "{# a", "{% raw %}a", "{% break %}", "{{ a b }}", "{{ 1 2 }}", "{% for i l %}{% endfor %}",
    "{{ x is string is string }}", "{% macro f(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{% for loop in l %}{% endfor %}",
    "{% if x|nofilter %}{% endif %}", "{% if false %}{{ x|nofilter }}{{ x is notest }}{% endif %}ok", "{% if true %}{{ x|nofilter }}{% endif %}",
    "{{ raise_exception('a ' ~ x) }}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{{ messages[0]['role'] == 'user' and messages[-1].content }}{% for m in messages[::-1] %}{{ m.content }}{% endfor %}",
    "{{ tools is none }}{{ tools }}{{ documents is defined }}{{ add_generation_prompt }}{{ bos_token is defined }}{{ bos_token }}",
]


def all(conversations):
    for e in EXPRESSIONS:
        yield "{{ " + e + " }}", [X]
    for s in STATEMENTS:
        yield s, [X]
    for chat in CHATS:
        yield chat, list(conversations())


CHATS = [
    # ChatML with tools, reasoning that is stripped from earlier turns, and tool results in a user's turn.
    """{%- macro call(c) %}<call>{{ {"name": c.name, "arguments": c.arguments} | tojson }}</call>{% endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for c in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\\n' }}{%- endif %}
            {{- call(c.function) }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<r>\\n' }}
        {{- content }}
        {{- '\\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    # Headers, dates, tools as JSON with an indent, trimmed contents, a call without content.
    """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|h|>system<|e|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|h|>' + message['role'] + '<|e|>\\n\\n'+ message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|h|>assistant<|e|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|end|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|h|>ipython<|e|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|h|>assistant<|e|>\\n\\n' }}{%- endif %}
""",
    # Turns that alternate, parts, a system message in the first turn, generation blocks, types of parameters by a macro.
    """{%- macro type_of(s) %}
    {%- if s.type == 'array' %}list[{{ type_of(s['items']) }}]
    {%- elif s.type is iterable and s.type is not string %}{{ s.type | join(' | ') }}
    {%- elif s.properties is defined and s.properties.items() | length > 0 %}{ {%- for k, v in s.properties.items() %}{{ k }}: {{ type_of(v) }}{{ ', ' if not loop.last }}{%- endfor %} }
    {%- else %}{{ s.type }}{% endif %}
{%- endmacro -%}
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set prefix = messages[0]['content'] + '\\n\\n' -%}{%- else -%}{%- set prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- if tools -%}
    {%- for tool in tools | map(attribute='function') -%}
        {%- for name, p in tool.parameters.properties | dictsort -%}
            {{ tool.name }}.{{ name }}: {{ type_of(p) }}{{ ' # ' ~ p.description | replace('\\n', ' ') if p.description }}{{ ' = ' ~ p.default | string if p.default is defined }}{{ '\\n' }}
        {%- endfor -%}
    {%- endfor -%}
{%- endif -%}
{%- for message in loop_messages if message.role not in ['tool'] -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\\n' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {%- if role == 'model' -%}
            {% generation %}{{ message['content'] | trim }}{{ '</turn>' }}{% endgeneration %}
        {%- else -%}
            {{ message['content'] | trim }}{{ '</turn>' }}
        {%- endif -%}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
""",
]
