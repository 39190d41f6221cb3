#!/usr/bin/env python3
"""The report in headless Chromium: nothing on its console, every plot in the DOM, a picture in both schemes.

usage: browser_test.py PAGE_WRITER      writes a page of made-up figures to the path that it is given
Exit status 77: skipped, with the reason."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib

SKIPPED = 77
LIMIT_S = 50


def browse(folder, chromium, arguments, page):
    """(standard output, standard error) of one headless run with a profile of its own."""
    profile = tempfile.mkdtemp(dir=folder)
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
               "--no-first-run", "--hide-scrollbars", f"--user-data-dir={profile}", "--enable-logging=stderr",
               *arguments, page if "://" in page else "file://" + page]
    # A session of its own, so that a browser past its time ends with all of its processes.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as browser:
        try:
            out, err = browser.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(browser.pid, signal.SIGKILL)
            sys.exit(f"chromium took longer than {LIMIT_S} s")
    if browser.returncode != 0:
        sys.exit(f"chromium ended with status {browser.returncode}: {err.decode(errors='replace')[-500:]}")
    return out.decode(errors="replace"), err.decode(errors="replace")


def console_lines(log):
    """What a page says lands in the log as CONSOLE; the rest is the browser's own."""
    return [line for line in log.splitlines() if "CONSOLE" in line]


MEASURE = """<script>addEventListener('load', () => {
  const cut = [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1);
  document.body.setAttribute('data-cut', cut.map((box) => box.firstElementChild.className || 'table').join(' '));
  document.body.setAttribute('data-wide', document.documentElement.scrollWidth > innerWidth + 1);
});</script>"""


def check_widths(folder, chromium, page):
    """No table is cut off at the usual width, the bars' none at all, and the page itself never scrolls sideways."""
    measured = os.path.join(folder, "measured.html")
    with open(page, encoding="utf-8") as source, open(measured, "w", encoding="utf-8") as file:
        file.write(source.read().replace("</body>", MEASURE + "</body>"))
    for width, allowed in ((1300, ()), (800, ("arms", "table"))):
        dom, _ = browse(folder, chromium, ["--dump-dom", f"--window-size={width},2600"], measured)
        assert 'data-wide="false"' in dom, f"the page is wider than {width} pixels"
        cut = dom.split('data-cut="', 1)[1].split('"', 1)[0].split()
        assert set(cut) <= set(allowed), f"cut off at {width} pixels: {cut}"


def pixel_kinds(path):
    """How many kinds of pixels an 8-bit RGB or RGBA PNG has, as its filters left them: a blank one has next to none."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path + " is no PNG"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6), f"unexpected PNG: depth {depth}, type {kind}"
    at, packed = 8, b""
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    raw, size, seen = zlib.decompress(packed), 4 if kind == 6 else 3, set()
    stride = width * size + 1
    for row in range(height):
        line = raw[row * stride + 1:(row + 1) * stride]
        seen.update(line[i:i + 3] for i in range(0, len(line), size))
    return len(seen)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        print("SKIP: there is no chromium here; install the package chromium to run this test")
        return SKIPPED
    if not shutil.which("gnuplot"):
        print("SKIP: there is no gnuplot here; install the package gnuplot-nox to run this test")
        return SKIPPED
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = os.path.join(folder, "page.html")
        written = subprocess.run([sys.argv[1], page], capture_output=True, timeout=LIMIT_S, check=True)
        expected = int(written.stdout)
        # The control: a page that does complain must be heard, or silence means nothing.
        control = os.path.join(folder, "control.html")
        with open(control, "w", encoding="utf-8") as file:
            file.write("<!DOCTYPE html><script>console.error('heard')</script>")
        _, log = browse(folder, chromium, ["--dump-dom"], control)
        assert any("heard" in line for line in console_lines(log)), "this browser's console is not heard:\n" + log[-500:]
        dom, log = browse(folder, chromium, ["--dump-dom"], page)
        assert not console_lines(log), "the console is not silent: " + "\n".join(console_lines(log))
        plots = dom.count('<svg class="plot"')
        assert plots == expected > 0, f"{plots} plots in the DOM, {expected} were drawn"
        curves = dom.count("var(--s")
        assert curves > expected, f"{curves} coloured things in {plots} plots"
        check_widths(folder, chromium, page)
        for scheme, number in (("dark", 0), ("light", 1)):
            picture = os.path.join(folder, scheme + ".png")
            _, log = browse(folder, chromium, ["--window-size=1300,2600", f"--screenshot={picture}",
                                               f"--blink-settings=preferredColorScheme={number}"], page)
            assert not console_lines(log), "the console is not silent: " + "\n".join(console_lines(log))
            assert pixel_kinds(picture) > 50, f"the picture of the {scheme} scheme is blank"
    print(f"{expected} plots, both schemes, no console lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
