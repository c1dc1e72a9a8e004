"""The page benches/results/clients.md: its sections between marks are replaced, its prose is kept."""

import platform
import re
import subprocess
import textwrap
import time
from pathlib import Path

from server import ROOT, cores

PAGE = ROOT / "benches/results/clients.md"
# The figures of a trial do not replace measured ones.
TRIAL = ROOT / "target/BENCHMARKS-CLIENTS-trial.md"
COLUMNS = 120


def write(sections, trial):
    """Writes each section of {mark: text} between its marks, and returns the path of the page."""
    text = PAGE.read_text()
    for mark, section in sections.items():
        begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise RuntimeError(f"{PAGE} does not have the marks of {mark} once")
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{section.strip()}\n{end}{after}"
    path = TRIAL if trial else PAGE
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def table(heads, rows):
    """The first column is text, the others are numbers."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("| --- ", "|---").replace("| ---: ", "|---:") for line in lines)


def wrapped(text, indent=""):
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False) + "\n"


def notes(texts):
    return "".join(wrapped(f"- {text}", "  ") for text in texts)


def number(value):
    """Three digits: 48,213, 213, 21.3, 2.13, 0.213."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def machine():
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    placed = "the server on one, the load on the other" if cores() > 1 else "one for all"
    return (f"{model.group(1) if model else platform.machine()}, {cores()} cores ({placed}), "
            f"Linux {platform.release()}")


def commit():
    """The last one that changed what is measured."""
    found = subprocess.run(["git", "log", "-1", "--format=%h", "--", "src", "clients", ":!*.md"], cwd=ROOT,
                           capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def today():
    return time.strftime("%Y-%m-%d", time.gmtime())
