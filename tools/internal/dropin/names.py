

# The names that tool modules of the Python client copilot_cli import, in both of its
# layouts: from modules below copilot_cli, or from modules beside the tools. They are found
# last, so a module that the tools bring along counts.


@dataclass
class ToolContext:
    workspace_root: str
    sync_file_to_server: Callable[[str, str], None]
    open_document: Callable[[str, str, str], None]
    lsp_bridge: Any = None  # always None: tools search texts then


ToolContext.__module__ = "tools._base"

# The documentation at hand, by ID. The first call of a tool that uses it brings it along.
LIBRARIES = {}


def find_libraries(name):
    """Returns the libraries of this name, then those of which a name holds it or is in it."""
    name = name.strip().lower()

    def rank(library):
        names = [library["id"], *library["aliases"]]
        return 0 if name in names else 1 if any(name in n or n in name for n in names) else 2

    return sorted((lib for lib in LIBRARIES.values() if name and rank(lib) < 2), key=rank)


def search_library(library_id, query, max_chars=4000):
    """Returns the sections that have most words of the query. A word in the heading counts three times."""
    sections = LIBRARIES[library_id]["sections"] if library_id in LIBRARIES else []
    words = set(query.lower().split())

    def score(section):
        heading = section.partition("\n")[0].lower()
        return sum((word in section.lower()) + 2 * (word in heading) for word in words)

    best = sorted(filter(score, sections), key=score, reverse=True)
    parts = [s[:1500] for s in best[:8]] or [s[:800] for s in sections[:5]]
    while len("\n\n---\n\n".join(parts)) > max_chars:
        parts.pop()
    return "\n\n---\n\n".join(parts)


def log_names():
    import logging

    return {"get_logger": logging.getLogger}


def platform_names():
    import pathlib
    import shutil

    return {
        "find_grep": lambda: shutil.which("grep"),
        "path_to_file_uri": lambda path: pathlib.Path(os.path.abspath(path)).as_uri(),
    }


def lsp_names():
    from urllib.parse import unquote, urlsplit

    kinds = (
        "File Module Namespace Package Class Method Property Field Constructor Enum Interface Function Variable "
        "Constant String Number Boolean Array Object Key Null EnumMember Struct Event Operator TypeParameter"
    )
    return {
        "_uri_to_path": lambda uri: unquote(urlsplit(uri).path) if uri.startswith("file:") else uri,
        "_SYMBOL_KINDS": dict(enumerate(kinds.split(), 1)),
    }


def library_names():
    return {"LIBRARIES": LIBRARIES, "resolve": find_libraries, "search_docs": search_library}


def base_names():
    return {"ToolContext": ToolContext, "ToolResult": list, "TOOL_OUTPUT_LIMIT": 4000}


class Names:
    """Finds the modules, and makes the directory of the tools a package of two names."""

    def __init__(self, directory):
        self.packages = {"copilot_cli": [], "tools": [directory], "copilot_cli.tools": [directory]}
        self.modules = dict.fromkeys(self.packages, dict)
        for name, names in (
            ("tools._base", base_names),
            ("log", log_names),
            ("platform_utils", platform_names),
            ("lsp_bridge", lsp_names),
            ("library_docs", library_names),
        ):
            self.modules[name] = self.modules["copilot_cli." + name] = names

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=name in self.packages)
        spec.submodule_search_locations = self.packages.get(name)
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(self.modules[module.__name__]())


