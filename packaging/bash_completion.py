"""Bash completion from the same trees of commands and options that the manual pages are made of (help_pages.py)."""

import re

# What follows the words so far is data in the case branches; this is all the rest. Commands may follow options
# (clustar coflow replay), so the words that name commands are collected from the left.
HEAD = """\
# Bash completion of clustar's programs, written at build time from their options.

_clustar_complete() {  # _clustar_complete PATH-OF-COMMANDS: options and commands that fit the word at the cursor
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} commands="" options="" values=""
  local path=${COMP_WORDS[0]##*/} index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$path ${COMP_WORDS[index]}" in
PATHS) path+=" ${COMP_WORDS[index]}" ;;
    esac
  done
  case $path in
"""
TAIL = """\
  esac
  case "$path:$before" in
VALUES  esac
  if [ -n "$values" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [ -n "$commands" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  fi
}
"""


def paths_of(path, tree):
    yield path, tree
    for command in tree["commands"]:
        yield from paths_of(f"{path} {command['name']}", command)


def allowed_values(option):
    """The values of an option that takes one of a few: {a,b} or a|b in its type, or a|b in its description."""
    either = r"(?<![\w|])(\w[\w-]*(?:\|\w[\w-]*)+)(?![\w|])"
    match = (re.search(r"\{([^{}]*\w)\}", option["type"]) or re.search(either, option["type"])
             or re.search(either, option.get("description", "")))
    return re.split(r"[,|]", match[1]) if match else []


def script(trees):
    cases, paths, values = "", [], ""
    for program, root in trees.items():
        for path, tree in paths_of(program, root):
            if path != program:
                paths.append(f'"{path}"')
            names = " ".join(name for option in tree["options"] for name in option["names"] if name.startswith("-"))
            commands = " ".join(command["name"] for command in tree["commands"])
            cases += f'    "{path}")\n      commands="{commands}" options="{names}" ;;\n'
            for option in tree["options"]:
                allowed = allowed_values(option)
                if allowed and not option["positional"] and not option["flag"]:
                    keys = " | ".join(f'"{path}:{name}"' for name in option["names"])
                    values += f'    {keys}) values="{" ".join(allowed)}" ;;\n'
    head = HEAD.replace("PATHS", "      " + " | ".join(paths))
    return head + cases + TAIL.replace("VALUES", values) + f"complete -o default -F _clustar_complete {' '.join(trees)}\n"
