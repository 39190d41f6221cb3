#!/usr/bin/env python3
"""Writes the bill of materials of an installed component as SPDX 2.3 JSON: which libraries its files are linked with, and
which are compiled in (libraries of headers, static runtimes), with their versions.

Nothing is listed by hand: the linked ones are what the loader takes, the compiled-in ones own the headers that Ninja saw
the compiler read. Names and versions are those of Debian packages, NOASSERTION where no package has the file.
"""

import argparse
import collections
import datetime
import functools
import hashlib
import json
import os
import re
import subprocess
import sys

# Headers of the kernel's interface: nothing of them is in the binary.
INTERFACES_ONLY = {"linux"}

Package = collections.namedtuple("Package", "name version source architecture licence")


def output_of(*command):
    """Standard output, "" where the tool is absent or failed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout
    except FileNotFoundError:
        return ""


def owners(paths):
    """path -> name:architecture of the Debian package that has the file; those that none has are left out."""
    # /lib is a link to /usr/lib, and dpkg knows files by either name.
    names = {}
    for path in paths:
        real = os.path.realpath(path)
        for name in {path, real, real.removeprefix("/usr")}:
            names[name] = path
    found = {}
    for line in output_of("dpkg-query", "--search", *sorted(names)).splitlines():
        package, _, file = line.rpartition(": ")
        if file in names:
            found[names[file]] = package.split(",")[0]
    return found


@functools.cache
def package(name):
    fields = "${Package}\t${Version}\t${source:Package}\t${Architecture}\n"
    name, version, source, architecture = output_of("dpkg-query", "--show", "--showformat", fields, name).split("\n")[0].split("\t")
    return Package(name, version, source, architecture, licence_of(name))


def licence_of(name):
    """What the package's own list of licences says of all its files, in Debian's words."""
    try:
        with open(f"/usr/share/doc/{name}/copyright", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^Files: *\*$.*?^License: *([^\n]+)", file.read(), re.MULTILINE | re.DOTALL)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def linked(files):
    """(packages, sonames without a package) that the loader takes for these files."""
    needed = set()
    for file in files:
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", file)))
    paths = {}
    for file in files:
        for soname, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", output_of("ldd", file), re.MULTILINE):
            paths[soname or os.path.basename(path)] = path
    found = owners({paths[soname] for soname in needed if soname in paths})
    packages = {package(found[paths[soname]]) for soname in needed if paths.get(soname) in found}
    return packages, sorted(soname for soname in needed if paths.get(soname) not in found)


def compiled_in(build, files):
    """Packages whose headers the compiler read for these files: None where Ninja did not build them."""
    if not os.path.exists(os.path.join(build, "build.ninja")):
        return None
    targets = [os.path.relpath(file, build) for file in files]
    inputs = output_of("ninja", "-C", build, "-t", "inputs", *targets).splitlines()
    objects = [line for line in inputs if line.endswith(".o")]
    if not objects:
        return None
    headers = set(re.findall(r"^    (/\S+)$", output_of("ninja", "-C", build, "-t", "deps", *objects), re.MULTILINE))
    return {package(owner) for owner in set(owners(headers).values())}


def commit_in(path):
    with open(path, encoding="utf-8") as file:
        return re.search(r'clustar_commit\[\] = "(.*)"', file.read())[1]


def spdx_package(identifier, name, version, licence="", source=None):
    entry = {"SPDXID": f"SPDXRef-{identifier}", "name": name, "versionInfo": version or "NOASSERTION",
             "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
             "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}
    if not version:
        del entry["versionInfo"]
    if licence:
        entry["licenseComments"] = f"Debian's copyright file says: {licence}"
    if source:
        entry["sourceInfo"] = f"built from the Debian source package {source}"
    return entry


def document(arguments):
    commit = commit_in(arguments.commit_from)
    itself = spdx_package("clustar", arguments.name, arguments.version + (f" (commit {commit})" if commit else ""))
    itself["licenseDeclared"] = "Apache-2.0"
    packages, relations = [itself], []

    def add(entry, kind, more):
        packages.append(entry | more)
        relations.append({"spdxElementId": "SPDXRef-clustar", "relationshipType": kind, "relatedSpdxElement": entry["SPDXID"]})

    dynamic, unknown = linked(arguments.files)
    static = compiled_in(arguments.build, arguments.files) if arguments.files else set()
    if static is None:
        itself["comment"] = "What is compiled in is not listed: only a build by Ninja tells which headers were read."
    sources = {each.source for each in dynamic} | INTERFACES_ONLY
    for kind, some in (("DYNAMIC_LINK", dynamic), ("STATIC_LINK", {each for each in static or () if each.source not in sources})):
        for each in sorted(some):
            locator = f"pkg:deb/debian/{each.name}@{each.version}?arch={each.architecture}"
            add(spdx_package("Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", each.name), each.name, each.version, each.licence, each.source),
                kind, {"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                         "referenceLocator": locator.replace("+", "%2B")}]})
    for soname in unknown:
        add(spdx_package("Library-" + re.sub(r"[^A-Za-z0-9.-]", "-", soname), soname, ""), "DYNAMIC_LINK",
            {"comment": "no package of this system has it"})
    relations.insert(0, {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-clustar"})
    contents = json.dumps([packages, relations], sort_keys=True)
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp()),
                                           datetime.timezone.utc)
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"{arguments.name}-{arguments.version}",
            "documentNamespace": "https://spdx.org/spdxdocs/"
                                 f"{arguments.name}-{arguments.version}-{hashlib.sha256(contents.encode()).hexdigest()[:32]}",
            "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: clustar-packaging-sbom"]},
            "packages": packages, "relationships": relations}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--build", required=True, metavar="FOLDER")
    parser.add_argument("--commit-from", required=True, metavar="FILE", help="what packaging/commit.cmake wrote")
    parser.add_argument("--output", required=True, metavar="FILE")
    parser.add_argument("files", nargs="*", help="programs and libraries as they were built")
    arguments = parser.parse_args()
    absent = [file for file in arguments.files if not os.path.exists(file)]
    if absent:
        sys.exit(f"sbom.py: not built yet: {', '.join(absent)}; cmake --build {arguments.build} --target clustar_installed")
    os.makedirs(os.path.dirname(arguments.output), exist_ok=True)
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(document(arguments), file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
