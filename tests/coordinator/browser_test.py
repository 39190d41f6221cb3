#!/usr/bin/env python3
"""The coordinator's page in headless Chromium: live figures, text that is never markup, narrow and wide, both schemes, and
a coordinator that is lost.

usage: browser_test.py STAGE [--pictures FOLDER]    STAGE plays jobs before a coordinator and prints its page's port
Exit status 77: skipped, with the reason."""

import argparse
import html
import http.server
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

SKIPPED = 77
LIMIT_S = 50
# Of the page's own time, which stands still while it waits for an answer: so many are asked for in a few seconds.
LONG_MS, SHORT_MS = 400_000, 5_000

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("report", os.path.join(here, "../lossy_report/browser_test.py"))
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
        return answer.read().decode()


class OwnServer:
    """The page, changed for a test, and states that were recorded: after the last one the connection is closed."""

    def __init__(self, page, states, frame=None):
        outer = self
        pages = {"/": page} if frame is None else {"/": frame, "/framed": page}
        self.states = list(states)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path in pages:
                    return self.answer("text/html; charset=utf-8", pages[self.path])
                if self.path == "/state.json" and outer.states:
                    return self.answer("application/json", outer.states.pop(0))
                self.close_connection = True

            def answer(self, kind, text):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def browse(folder, chromium, port, arguments, budget_ms):
    """(DOM or nothing, what the page said on its console)"""
    out, log = report.browse(folder, chromium, [*arguments, f"--virtual-time-budget={budget_ms}"],
                             f"http://127.0.0.1:{port}/")
    return out, report.console_lines(log)


def cells(dom, label):
    """The texts of the cells under one heading."""
    found = re.findall(rf'<td[^>]*data-label="{label}"[^>]*>(.*?)</td>', dom)
    return [html.unescape(re.sub(r"<[^>]*>", "", text)) for text in found]


MEASURE = """<script>setInterval(() => {
  const cut = [...document.querySelectorAll('td, th, dd')].filter((box) => box.scrollWidth > box.clientWidth + 1);
  top.document.body.setAttribute('data-cut', cut.map((box) => box.dataset.label || box.textContent).join(' '));
  top.document.body.setAttribute('data-width', innerWidth);
  top.document.body.setAttribute('data-wide', document.documentElement.scrollWidth > innerWidth + 1);
}, 500);</script>"""


def check_live(folder, chromium, port):
    dom, said = browse(folder, chromium, port, ["--dump-dom"], LONG_MS)
    assert not said, "the console is not silent: " + "\n".join(said)
    assert 'id="role" class="charge">in charge<' in dom, "it is not in charge"
    assert re.search(r'id="lost"[^>]*hidden', dom), "it says that it lost the coordinator"
    jobs = cells(dom, "job")
    assert {"1", "2", "3"} <= set(jobs), f"jobs: {jobs}"
    assert cells(dom, "place") == ["1", "2", "3", "4", "5"], cells(dom, "place")
    assert '<b>bold & "quoted"</b>' in cells(dom, "tenant"), cells(dom, "tenant")
    assert "<b>" not in dom, "what came over the wire became markup"
    rates = [rate for rate in cells(dom, "rate") if rate]
    assert any(re.fullmatch(r"[\d.]+ [MG]B/s", rate) for rate in rates), f"no rates: {rates}"
    assert "0x7f3a91c4d2e85b06" in cells(dom, "communicator"), cells(dom, "communicator")
    bars = re.findall(r'class="bar"[^>]*><i style="width: ([\d.]+)%', dom)
    assert bars and all(0 <= float(width) <= 100 for width in bars), f"bars: {bars}"


def check_widths(folder, chromium, port):
    page = fetch(port, "/").replace("</body>", MEASURE + "</body>")
    states = [fetch(port, "/state.json")] * 4
    for width in (380, 700, 1100, 1400):
        # A window is 500 pixels wide at least; a frame is not.
        frame = f'<!DOCTYPE html><body><iframe src="/framed" style="border: 0; width: {width}px; height: 900px"></iframe>'
        with OwnServer(page, states * 2, frame) as own:
            dom, _ = browse(folder, chromium, own.port, ["--dump-dom", "--window-size=1500,1000"], SHORT_MS)
        assert f'data-width="{width}"' in dom, f"the window has not got {width} pixels"
        assert 'data-wide="false"' in dom, f"the page is wider than {width} pixels"
        cut = html.unescape(re.search(r'data-cut="([^"]*)"', dom)[1])
        assert not cut, f"cut off at {width} pixels: {cut}"


def check_lost(folder, chromium, port):
    with OwnServer(fetch(port, "/"), [fetch(port, "/state.json")] * 2) as own:
        dom, _ = browse(folder, chromium, own.port, ["--dump-dom"], SHORT_MS)
    said = re.search(r'id="lost"[^>]*>([^<]*)<', dom)
    assert said and re.fullmatch(r"Lost the coordinator .* ago: what is below is as old\.", said[1]), said and said[1]
    assert not re.search(r'id="lost"[^>]*hidden', dom), "it does not show that it lost the coordinator"
    assert cells(dom, "job"), "what was last known is gone"
    with OwnServer(fetch(port, "/"), []) as own:
        dom, _ = browse(folder, chromium, own.port, ["--dump-dom"], SHORT_MS)
    assert "The coordinator does not answer." in dom


def check_pictures(folder, chromium, port, pictures, budget_ms):
    for width, height in ((1400, 900), (380, 1800)):
        for scheme, number in (("dark", 0), ("light", 1)):
            picture = os.path.join(pictures, f"coordinator-{width}-{scheme}.png")
            _, said = browse(folder, chromium, port, [f"--window-size={width},{height}", f"--screenshot={picture}",
                                                      f"--blink-settings=preferredColorScheme={number}"], budget_ms)
            assert not said, "the console is not silent: " + "\n".join(said)
            assert report.pixel_kinds(picture) > 50, f"the picture of {width} pixels, {scheme}, is blank"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage")
    parser.add_argument("--pictures", help="keep the pictures in this folder")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        print("SKIP: there is no chromium here; install the package chromium to run this test")
        return SKIPPED
    with subprocess.Popen([arguments.stage], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stage, \
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            port = int(stage.stdout.readline())
            check_live(folder, chromium, port)
            check_widths(folder, chromium, port)
            check_lost(folder, chromium, port)
            kept = arguments.pictures
            check_pictures(folder, chromium, port, kept or folder, LONG_MS if kept else SHORT_MS)
        finally:
            stage.stdin.close()
        assert stage.wait(LIMIT_S) == 0, "the stage failed"
    print("live, four widths, two schemes, and lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
