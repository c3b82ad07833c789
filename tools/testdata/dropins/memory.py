# tools/memory.py
"""Persistent memory store for the agent — save/read/list/delete notes."""

import os
from tools._base import ToolContext

_MEMORY_DIR = os.path.expanduser("~/.copilot-cli/memories")

SCHEMA = {
    "name": "memory",
    "description": "Persistent memory store. Save, read, list, or delete named memory files.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "enum": ["save", "read", "list", "delete"],
                "description": "The operation to perform.",
            },
            "path": {
                "type": "string",
                "description": "Memory file name (e.g. 'notes.md'). Required for save/read/delete.",
            },
            "content": {
                "type": "string",
                "description": "Content to save. Required for 'save'.",
            },
        },
        "required": ["command"],
    },
}


def execute(tool_input: dict, ctx: ToolContext) -> list:
    command = tool_input.get("command", "")
    path = tool_input.get("path", "")
    content = tool_input.get("content", "")
    os.makedirs(_MEMORY_DIR, exist_ok=True)

    if command == "list":
        entries = [f for f in sorted(os.listdir(_MEMORY_DIR))
                   if os.path.isfile(os.path.join(_MEMORY_DIR, f))]
        listing = "\n".join(entries) if entries else "No memories saved yet."
        return [{"type": "text", "value": listing}]

    if not path:
        return [{"type": "text", "value": "Error: 'path' is required for save/read/delete."}]

    safe_name = os.path.basename(path)  # prevent directory traversal
    full_path = os.path.join(_MEMORY_DIR, safe_name)

    if command == "save":
        with open(full_path, "w") as f:
            f.write(content)
        return [{"type": "text", "value": f"Saved memory '{safe_name}'."}]
    elif command == "read":
        if not os.path.exists(full_path):
            return [{"type": "text", "value": f"Memory '{safe_name}' not found."}]
        with open(full_path, "r") as f:
            return [{"type": "text", "value": f.read()}]
    elif command == "delete":
        if os.path.exists(full_path):
            os.remove(full_path)
            return [{"type": "text", "value": f"Deleted memory '{safe_name}'."}]
        return [{"type": "text", "value": f"Memory '{safe_name}' not found."}]

    return [{"type": "text", "value": f"Unknown command: {command}"}]
