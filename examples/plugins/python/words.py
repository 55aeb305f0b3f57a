#!/usr/bin/env python3
"""A plugin with two tools: counts words, and turns text round. Speaks the `init` form: many tools, calls by name.

    [[plugins]]
    path = "python3"
    args = ["examples/plugins/python/words.py"]
"""
import json
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = {
    "count_words": ("Counts the words of a text.", lambda text: str(len(text.split()))),
    "turn_round": ("Returns a text backwards.", lambda text: text[::-1]),
}

for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "init":
        tools = [{"name": name, "description": about, "parameters": TEXT} for name, (about, _) in TOOLS.items()]
        answer = {"type": "init", "tools": tools}
    elif message["type"] == "call":
        _, run = TOOLS[message["name"]]
        content = [{"type": "text", "text": run(message["params"]["text"])}]
        answer = {"type": "result", "call_id": message["call_id"], "content": content, "is_error": False}
    else:
        print(f"unknown message {message['type']!r}", file=sys.stderr, flush=True)
        continue
    print(json.dumps(answer), flush=True)
