#!/usr/bin/env python3
"""Writes manual pages (gzip) and bash completion from what each program says of its options.

`clustar` prints its commands and options as JSON (bench/cli/option_tree.h); of the other programs their --help is read.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess

import bash_completion


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def roff(text):
    """Text as roff prints it: no line of it is a request, and minus signs stay such."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def title(name, version):
    return f'.TH {name.upper().replace("-", chr(92) + "-")} 1 "" "{version}" "clustar"'


def verbatim(text):
    return [".nf", roff(text.rstrip("\n")), ".fi"]


def value_of(option):
    """What stands behind an option's name: TYPE, or {a,b} where only those are allowed."""
    allowed = bash_completion.allowed_values({"type": option["type"]})
    # What follows a colon are limits, but for one within brackets: FILE[:KEY=VALUE].
    return "{" + ",".join(allowed) + "}" if allowed else re.split(r":(?![^\[]*\])", option["type"])[0]


def option_lines(option):
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"])
    value = "" if option["flag"] or not option["type"] else f" \\fI{roff(value_of(option))}\\fR"
    notes = ["Required."] if option["required"] else []
    if option["default"]:
        notes.append(f"Default: {option['default']}.")
    description = option["description"]
    if notes and not description.endswith((".", "]", "?")):
        description += "."
    return [".TP", names + value, roff(" ".join([description] + notes))]


def command_page(words, command, version):
    name = "-".join(words)
    options = [option for option in command["options"] if not option["positional"]]
    positionals = [option for option in command["options"] if option["positional"]]
    synopsis = f"\\fB{roff(' '.join(words))}\\fR" + (" [\\fIOPTIONS\\fR]" if options else "")
    for each in positionals:
        place = f"\\fI{roff(each['names'][0])}\\fR"
        synopsis += f" {place}" if each["required"] else f" [{place}]"
    if command["commands"]:
        synopsis += " \\fICOMMAND\\fR"
    # clustar's own description begins with its name.
    about = command["description"].removeprefix(f"{name}: ")
    lines = [title(name, version), ".SH NAME", f"{roff(name)} \\- {roff(about)}", ".SH SYNOPSIS", synopsis]
    if command["commands"]:
        lines.append(".SH COMMANDS")
        for each in command["commands"]:
            page = f"\\fB{roff(name)}\\-{roff(each['name'])}\\fR(1)"
            lines += [".TP", f"\\fB{roff(each['name'])}\\fR", f"{roff(each['description'])}; see {page}."]
    for heading, some in (("ARGUMENTS", positionals), ("OPTIONS", options)):
        if some:
            lines.append(f".SH {heading}")
            for each in some:
                lines += option_lines(each)
    if command["footer"]:
        lines += [".SH NOTES", *verbatim(command["footer"])]
    if len(words) > 1:
        lines += [".SH SEE ALSO", f"\\fB{roff('-'.join(words[:-1]))}\\fR(1)"]
    return "\n".join(lines) + "\n"


def plain_page(name, text, version):
    """Of a program that has no commands: its --help is already a page, of usage, description, options, example."""
    usage, about, rest = text.split("\n\n", 2)
    lines = [title(name, version), ".SH NAME", f"{roff(name)} \\- {roff(about.split('. ')[0].replace(chr(10), ' ').rstrip('.'))}",
             ".SH SYNOPSIS", roff(usage.removeprefix("usage: ")), ".SH DESCRIPTION", roff(about),
             ".SH OPTIONS", *verbatim(rest)]
    return "\n".join(lines) + "\n"


def options_in(text):
    """The options that a --help lists, each at the beginning of its line."""
    return [{"names": [match[1]], "type": "FILE" if match[2] == "FILE" else (match[2] or ""), "flag": not match[2],
             "positional": False} for match in re.finditer(r"^  (--[\w-]+)[ =]?([A-Z]+)?(?=\s)", text, re.MULTILINE)]


def pages_of(words, command, version):
    yield "-".join(words), command_page(words, command, version)
    for each in command["commands"]:
        yield from pages_of(words + [each["name"]], each, version)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--man", required=True, metavar="FOLDER", help="made new")
    parser.add_argument("--completion", required=True, metavar="FILE")
    parser.add_argument("programs", nargs="+")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.man, ignore_errors=True)
    os.makedirs(arguments.man)
    os.makedirs(os.path.dirname(arguments.completion), exist_ok=True)
    trees = {}
    for program in arguments.programs:
        name = os.path.basename(program)
        version = output_of(program, "--version").strip().split(" (")[0]
        if name == "clustar":
            trees[name] = json.loads(output_of(program, "--option-tree"))
            pages = pages_of([name], trees[name], version)
        else:
            text = output_of(program, "--help")
            trees[name] = {"options": options_in(text), "commands": []}
            pages = [(name, plain_page(name, text, version))]
        for page, roff_text in pages:
            with open(os.path.join(arguments.man, f"{page}.1.gz"), "wb") as file:
                # No time and no name: the same page is the same bytes.
                file.write(gzip.compress(roff_text.encode(), 9, mtime=0))
    with open(arguments.completion, "w", encoding="utf-8") as file:
        file.write(bash_completion.script(trees))
    # bash-completion looks for a file of the program's name.
    for program in set(trees) - {os.path.basename(arguments.completion)}:
        link = os.path.join(os.path.dirname(arguments.completion), program)
        if not os.path.islink(link):
            os.symlink(os.path.basename(arguments.completion), link)


if __name__ == "__main__":
    main()
