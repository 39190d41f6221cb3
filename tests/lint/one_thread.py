#!/usr/bin/env python3
"""A test program that is not built for ThreadSanitizer (ONE_THREAD in tests/CMakeLists.txt) starts no thread."""

import re
import subprocess
import sys

STARTS = re.compile(r" U (pthread_create|thrd_create|_ZNSt6thread15_M_start_thread\w*)(?:@|$)", re.MULTILINE)


def check(programs):
    for program in programs:
        listing = subprocess.run(["nm", program], capture_output=True, text=True)
        if listing.returncode != 0:
            sys.exit(f"nm {program}: {listing.stderr.strip()}")
        if found := STARTS.search(listing.stdout):
            yield f"{program}: it starts threads ({found[1]}); take ONE_THREAD from its clustar_test()"


def main():
    violations = list(check(sys.argv[1:]))
    print("\n".join(violations) if violations else f"no violation in {len(sys.argv) - 1} programs")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
