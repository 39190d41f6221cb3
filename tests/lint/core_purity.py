#!/usr/bin/env python3
"""A pure core has no clock, socket, file, environment or thread: `nm -u` of its archive against an allow-list.

What the archives given together define counts as theirs, so a core may use another pure archive.
"""

import argparse
import re
import subprocess
import sys

ALLOWED = [re.compile(pattern) for pattern in (
    # the compiler's own helpers and C++ object model
    r"__cxa_(pure_virtual|deleted_virtual|throw|rethrow|begin_catch|end_catch|allocate_exception|free_exception|"
    r"init_primary_exception|throw_bad_array_new_length|bad_cast|guard_(acquire|release|abort))",
    r"__(gxx_personality_v0|dso_handle|stack_chk_fail|dynamic_cast)", r"_Unwind_(Resume|RaiseException|DeleteException)",
    r"_GLOBAL_OFFSET_TABLE_", r"DW\.ref\.__gxx_personality_v0", r"__u?(div|mod|mul)(ti|di)\d", r"__popcount(di|ti)2",
    r"_ZTV(N10__cxxabiv1|St|NSt).*", r"_ZTI(v|[a-z]|St|NSt).*|_ZTS(St|NSt).*",
    # which processor this is
    r"__cpu_(model|features2|indicator_init)",
    # memory
    r"_Zn[wa]m.*", r"_Zd[la]Pv.*", r"mem(cpy|move|set|cmp|chr)", r"str(len|cmp|ncmp|chr)", r"__mem(cpy|move|set)_chk",
    r"abort", r"_ZSt9terminatev", r"__assert_fail", r"_ZSt21__glibcxx_assert_fail.*",
    # values of the standard library: exceptions, strings, trees, hash tables, number conversion
    r"_ZSt\d+__throw_.*", r"_ZNS?K?S[abst]?\d*.*basic_string.*", r"_ZNK?S[s].*", r"_ZNK?St7__cxx1112basic_stringI.*",
    r"_ZNK?St\d+(exception|bad_alloc|logic_error|runtime_error|length_error|out_of_range|invalid_argument|"
    r"domain_error|range_error|overflow_error|underflow_error|bad_function_call)[CDa4w].*",
    r"_ZSt\d+_Rb_tree_.*", r"_ZSt11_Hash_bytes.*", r"_ZNK?St8__detail\d+(_Prime_rehash_policy|_List_node_base).*",
    # shared_ptr asks whether its count needs atomic instructions; what it answers changes nothing else
    r"__libc_single_threaded",
    # arithmetic
    r"l?l?round[fl]?|n?exp2?m?1?f?|log(2|10|1p)?f?|pow[f]?|sqrtf?|cbrtf?|fmodf?|floorf?|ceilf?|truncf?|l?lrint|nearbyint|"
    r"ldexpf?|frexpf?|hypotf?",
    # text by fmt, compiled once or header-only, but not its printing; the locale is its classic one unless a caller
    # passes another
    r"_ZNK?3fmt2v\d+(7vformat.*|6detail(?!5print|12report_error|11assert_fail).*|12format_error.*)", r"_ZT[ISV]N3fmt2v\d+12format_errorE",
    r"_ZNK?St6locale.*", r"_ZN?K?St(8numpunct|5ctype).*", r"_ZNSt8numpunctIcE2idE", r"_ZSt9has_facet.*|_ZSt9use_facet.*",
    r"snprintf|__snprintf_chk", r"localeconv",
)]
UNDEFINED = re.compile(r"^\s+[Uw] (\S+)$")
DEFINED = re.compile(r"^[0-9a-f]+ [A-TV-Zuvi] (\S+)$")
MEMBER = re.compile(r"^(\S+\.o(?:bj)?):$")


def symbols(archive):
    """(defined names, undefined name -> object that needs it) of one archive or object file."""
    listing = subprocess.run(["nm", archive], capture_output=True, text=True)
    if listing.returncode != 0:
        sys.exit(f"nm {archive}: {listing.stderr.strip()}")
    defined, undefined, member = set(), {}, archive
    for line in listing.stdout.splitlines():
        if match := MEMBER.match(line):
            member = match[1]
        elif match := UNDEFINED.match(line):
            undefined.setdefault(match[1].split("@")[0], member)
        elif match := DEFINED.match(line):
            defined.add(match[1])
    return defined, undefined


def readable(name):
    done = subprocess.run(["c++filt", name], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else name


def check(archives, support=()):
    """Violations of `archives`; what `support` defines is resolved but not judged."""
    tables = [(archive, *symbols(archive)) for archive in archives]
    defined = set().union(*(table[1] for table in tables), *(symbols(archive)[0] for archive in support))
    if not defined:
        yield f"{' '.join(archives)}: no defined symbol at all; nothing would be proven"
    for archive, _, undefined in tables:
        for name, member in sorted(undefined.items()):
            if name not in defined and not any(pattern.fullmatch(name) for pattern in ALLOWED):
                yield f"{archive}({member}): {readable(name)} is not for a pure core"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", nargs="+", help="pure archives or object files")
    parser.add_argument("--with", dest="support", action="append", default=[], help="archive they may use, not judged")
    arguments = parser.parse_args()
    violations = list(check(arguments.archives, arguments.support))
    print("\n".join(violations) or f"pure: {' '.join(arguments.archives)}")
    sys.exit(1 if violations else 0)
