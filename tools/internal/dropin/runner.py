# Runs tool modules for the program that started it. Requests on stdin and answers on
# stdout are one JSON object a line. "probe FILE..." describes the tool of each file;
# "serve FILE" answers calls of one tool, one after another.
import _thread
import os
import sys

sys.path[:] = [p for p in sys.path if p]  # no modules of the working directory
import ast
import importlib.machinery
import importlib.util
import json
import types
from dataclasses import dataclass
from typing import Any, Callable

# The output of a tool and its children must not get into our channel.
_in, _out = os.dup(0), os.dup(1)
_null = os.open(os.devnull, os.O_RDONLY)
os.dup2(_null, 0)
os.dup2(2, 1)
for _stream in (sys.stdout, sys.stderr):
    _stream.reconfigure(line_buffering=True, errors="backslashreplace")

_sending = _thread.allocate_lock()


def send(**frame):
    data = json.dumps(frame, allow_nan=False).encode() + b"\n"
    with _sending:
        while data:
            data = data[os.write(_out, data):]


def package(directory):
    """Makes the directory the package "tools", independent of its name."""
    names = Names(directory)
    sys.modules["tools"] = importlib.util.module_from_spec(names.find_spec("tools"))
    names.exec_module(sys.modules["tools"])
    sys.path.append(os.path.dirname(directory))
    sys.meta_path.append(names)


def load(path):
    name = "tools." + os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def explain(error, path):
    """Returns the text of an error and its line in the file."""
    import traceback

    line = 0
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno or 0
    step = error.__traceback__
    while step:
        if step.tb_frame.f_code.co_filename == path:
            line = step.tb_lineno
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename == path:
        return "SyntaxError: %s" % error.msg, line
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, SystemExit):
        text = "it called sys.exit(%s)" % ("" if error.code is None else error.code)
    return text, line


def schema_line(tree):
    """Returns the line on which a module sets SCHEMA, 0 if it does not."""
    for step in tree.body:
        targets = getattr(step, "targets", []) + [getattr(step, "target", None)]
        names = [name for target in targets if target for name in ast.walk(target)]
        if any(isinstance(name, ast.Name) and name.id == "SCHEMA" for name in names):
            return step.lineno
    return 0


def probe(paths):
    send(python=sys.executable)
    for path in paths:
        send(file=path)
        try:
            with open(path, "rb") as f:
                source = f.read()
            line = schema_line(ast.parse(source, path))
            # Without the word execute it can be no tool, so its code does not run.
            module = load(path) if b"execute" in source or b"import *" in source else None
            if line and not hasattr(module, "execute"):
                text = "it has SCHEMA but no function execute: write one, or begin the file's name with _"
                send(fault=text, line=line)
            elif not hasattr(module, "SCHEMA") or not hasattr(module, "execute"):
                send(skip=True)
            elif not isinstance(module.SCHEMA, dict):
                send(fault="SCHEMA is a %s, not a dict" % type(module.SCHEMA).__name__)
            elif not callable(module.execute):
                send(fault="execute is a %s, not a function" % type(module.execute).__name__)
            else:
                send(schema=module.SCHEMA)
        except BaseException as error:
            text, line = explain(error, path)
            send(fault=text, line=line)


def context(call):
    number = call["call"]
    LIBRARIES.update((library["id"], library) for library in call.get("libraries") or [])

    def sync_file_to_server(path, content):
        if not isinstance(content, str):
            raise TypeError("sync_file_to_server: content must be str, not " + type(content).__name__)
        send(call=number, sync=[os.path.abspath(os.fspath(path)), content])

    def open_document(uri, language, text):
        send(call=number, open=[str(uri), str(language), str(text)])

    fields = dict(
        workspace_root=call["root"],
        sync_file_to_server=sync_file_to_server,
        open_document=open_document,
    )
    # A directory's own _base may define another context, with fewer fields.
    bases = [sys.modules.get(name + "._base") for name in ("tools", "copilot_cli.tools")]
    theirs = next((base.ToolContext for base in bases if hasattr(base, "ToolContext")), ToolContext)
    for more in ({"lsp_bridge": None}, {}):
        try:
            return theirs(**fields, **more)
        except TypeError:
            pass
    return ToolContext(**fields)


def serve(path):
    try:
        module = load(path)
    except BaseException as error:
        text, line = explain(error, path)
        send(fault=text, line=line)
        return
    ourselves = os.getpid()
    for request in os.fdopen(_in, "rb"):
        call = json.loads(request)
        number = call["call"]
        try:
            os.chdir(call["root"])
            result = module.execute(call["input"], context(call))
            if isinstance(result, types.CoroutineType):
                import asyncio

                result = asyncio.run(result)
            if os.getpid() != ourselves:
                os._exit(0)  # a forked child of the tool that returned
            try:
                send(call=number, result=result)
            except (TypeError, ValueError, RecursionError) as error:
                send(call=number, fault="it returned what JSON cannot hold: %s" % error, line=0)
        except BaseException as error:
            if os.getpid() != ourselves:
                os._exit(1)
            text, line = explain(error, path)
            send(call=number, fault=text, line=line)
        sys.stdout.flush()
        sys.stderr.flush()


def bound_memory():
    """Limits the memory, so that a tool fails before the machine does."""
    try:
        import resource

        limit = max(4 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if hard == resource.RLIM_INFINITY or hard > limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    except (ImportError, OSError, ValueError):
        pass


def main():
    bound_memory()
    package(os.path.dirname(sys.argv[2]))
    if sys.argv[1] == "probe":
        probe(sys.argv[2:])
    else:
        serve(sys.argv[2])
