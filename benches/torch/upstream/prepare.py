"""Takes the test files out of a git directory of PyTorch, with what they import from there, and nothing else."""

import ast
import pathlib
import posixpath
import subprocess

from plan import FILES


def prepare(git, destination, files=tuple(FILES)):
    """Writes the files below `destination/test` and `destination/tools`; the paths that were written."""
    listed = run(git, "ls-tree", "-r", "--name-only", "HEAD", "test", "tools").splitlines()
    known, written, waiting = set(listed), set(), [f"test/{file}" for file in files]
    while waiting:
        path = waiting.pop()
        if path in written:
            continue
        if path not in known:
            raise SystemExit(f"{git} has no {path} at HEAD; choose others with --files")
        text = run(git, "show", f"HEAD:{path}")
        place = pathlib.Path(destination, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        written.add(path)
        waiting += sorted(imported(path, text, known))
    return sorted(written)


def imported(path, text, known):
    """The files among the known ones that a file imports: beside it, below `test`, or below the root."""
    found, folder = set(), posixpath.dirname(path)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names, roots = [alias.name for alias in node.names], (folder, "test", "")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)]
            roots = (folder, "test", "")
            if node.level:
                roots = (posixpath.normpath(posixpath.join(folder, *[".."] * (node.level - 1))),)
        else:
            continue
        for name in filter(None, names):
            found |= files_of(name, roots, known)
    # A file in a package needs the package.
    while folder:
        found |= {f"{folder}/__init__.py"} & known
        folder = posixpath.dirname(folder)
    return found


def files_of(name, roots, known):
    """The files of a module below the first root that has it."""
    for root in roots:
        stem = posixpath.join(root, *name.split("."))
        hit = {f"{stem}.py", f"{stem}/__init__.py"} & known
        if hit:
            return hit
    return set()


def run(git, *arguments):
    """What git prints."""
    return subprocess.run(["git", "-C", str(git), *arguments], check=True, capture_output=True, text=True).stdout
