"""scripts/paths-map: what it makes of clustar-sim's own JSON, and what it refuses."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCRIPT, SIM = sys.argv[1:3]
SVG = "{http://www.w3.org/2000/svg}"


def run(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=200)


class PathsMap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def draw(self, document):
        source = self.folder / "in.json"
        source.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return run(SCRIPT, "--out", str(self.folder / "map"), str(source))

    def test_draws_each_measured_value(self):
        measured = self.folder / "paths.json"
        self.assertEqual(run(SIM, "--experiment", "paths", "--quick", "--json", str(measured)).returncode, 0)
        done = self.draw(measured.read_text(encoding="utf-8"))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(measured.read_text(encoding="utf-8"))["results"]
        for name, arm, figure in (("tolerance", "p = 1 %", "p0_over_this"), ("parity", "parity", "without_over_this"),
                                  ("ideal", "parity", "of_ideal")):
            picture = xml.etree.ElementTree.parse(self.folder / f"map-{name}.svg")
            drawn = sorted(text.text for text in picture.iter(f"{SVG}text") if text.get("fill"))
            expected = sorted(f"{row['figures'][figure]:.2f}" for row in rows if row["arm"] == arm and figure in row["figures"])
            self.assertGreater(len(expected), 5)
            self.assertEqual(drawn, expected)

    def test_refuses_what_is_not_of_the_experiment(self):
        for document, words in (("{", "is not the JSON of"), ({"results": []}, "no results of the experiment paths"),
                                ({"results": [{"experiment": "paths", "situation": "near", "arm": "parity", "figures": {}}]}, "'near' is no situation"),
                                ({"results": [{"experiment": "paths", "situation": "1 ms, clean, 64 KiB, ring of 4", "arm": "parity",
                                               "figures": {"of_ideal": 1}}]}, "no 'p0_over_this' of the arm 'p = 1 %'")):
            refused = self.draw(document)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(words, refused.stderr)
        self.assertEqual(run(SCRIPT, "--out", str(self.folder / "map"), "/nonexistent.json").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
