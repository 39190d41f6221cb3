"""Whole programs over real packets: `clustar train`, `conform` and `perf` between the two ends of the cable of
scripts/softroce-vm, while netem disturbs it, it is cut, or a rank is killed. Run it inside, as root:

    scripts/softroce-vm --timeout 300 -- python3 tests/rdma/programs.py --bin build/release/bin --over verbs

tests/rdma/README.md has the list of cases.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import cable
import neighbours
import ranks

# Of a step of mlp-small, each rank sends so much: two messages of half the gradients.
STEP_BYTES = 407_050 * 4
FEW = 6  # steps of a case that needs some packets only
MANY = 20  # of the case that each kind of transport has to show for itself: clean, or tolerant
LIMIT = 150  # seconds for one training; a bound, not an expectation


class Failed(Exception):
    pass


class Bench:
    """What the cases share: where programs are, where results go, and the digests that must be equal."""

    def __init__(self, options):
        self.program = str(pathlib.Path(options.bin).resolve() / "clustar")
        self.plugin = str(pathlib.Path(options.bin).resolve().parent / "lib" / "libnccl-net-clustar.so")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="programs."))
        self.digests = {}
        self.counts = {}  # of the case that runs
        self.notes = []

    def training(self, over, **more):
        return ranks.Training(self.program, self.folder, over, **more)

    def to_the_middle(self, training):
        """Waits until each end has sent two steps' worth of bytes."""
        if not cable.wait_for_bytes(2 * STEP_BYTES, training.running, LIMIT):
            raise Failed(f"over before its middle: {training.wait(1).last_words()}")

    def train(self, over, steps=FEW, model="mlp-small", netem="", may_miss=0.0, **more):
        """A training that has to end well."""
        try:
            cable.disturb(netem)
            with self.training(over, model=model, steps=steps, **more) as training:
                outcome = training.wait(LIMIT)
            dropped = cable.dropped() if netem else 0
        finally:
            cable.calm()
        self.judge(over, outcome, steps, model, netem, may_miss, dropped)
        return outcome

    def judge(self, over, outcome, steps, model="mlp-small", netem="", may_miss=0.0, dropped=0):
        self.counts = outcome.counts
        wrong = ranks.complaints(over, outcome, steps, may_miss)
        if netem.startswith("loss") and dropped == 0:
            wrong.append("netem dropped nothing, so nothing was tried")
        if wrong:
            raise Failed("; ".join(wrong))
        self.notes.append(f"{outcome.report['train_s'] / steps:.2f} s a step")
        if netem.startswith("loss"):
            self.notes.append(f"{dropped} packets dropped")
        if may_miss == 0:
            self.same_parameters(model, steps, outcome.report["parameters_digest"])

    def same_parameters(self, model, steps, digest):
        """What carried the gradients, and what was done to it, must not show in the trained model."""
        expected = self.digests.setdefault((model, steps), digest)
        if digest != expected:
            raise Failed(f"the parameters are {digest}, after another run of {model} they were {expected}")


def clean(bench, over):
    bench.train(over, steps=FEW if over.lossy else MANY)


def disturbed(netem):
    return lambda bench, over: bench.train(over, netem=netem)


def cut(bench, over):
    """A second without a link is loss, and no more. But SoftRoCE fails a connected queue pair that has to send then,
    where a NIC repeats: what has no others may end, by an error that names the link, and within 3 s once that is back:
    before, no end hears of the other's."""
    back = []

    def mend():
        cable.mend()
        back.append(time.monotonic())

    mending = threading.Timer(1, mend)
    try:
        with bench.training(over, model="mlp-small", steps=FEW) as training:
            bench.to_the_middle(training)
            at = time.monotonic()
            cable.cut()
            mending.start()
            outcome = training.wait(LIMIT)
            ended = time.monotonic()
    finally:
        mending.cancel()
        if mending.ident is not None:
            mending.join()
        cable.mend()
    if outcome.status == [0, 0] or not over.connected:
        bench.judge(over, outcome, FEW)
        return
    bench.counts = outcome.counts
    late = ended - max([at, *back])
    if None in outcome.status or late > 3:
        raise Failed(f"{outcome.status} {late:.1f} s after the link was back: {outcome.last_words()}")
    if min(outcome.status) <= 0:
        raise Failed(f"exit status {outcome.status}: {outcome.last_words()}")
    text = " ".join(" ".join(outcome.text).split())
    # The event of the port may come after the queue pair's error; then it is said beside that.
    named = re.search(r"(the link of rxe_[ab] port 1\b[^:]*|rxe_[ab] port 1: [^:]*the link) is down\b", text)
    if named is None:
        raise Failed(f"no error names device, port and link: {outcome.last_words()}")
    bench.notes.append(f"error {ended - at:.1f} s after the link went down, {late:.1f} s after it was back: "
                       f"{named[0]}")


def killed(bench, over):
    """The survivor ends within 3 s, and says so by its exit status. Without --check-equal the trainer's own connections
    are silent, so it is the transport that notices."""
    with bench.training(over, model="mlp-small", steps=FEW, epochs=100, options=["--check-equal", "off"]) as training:
        bench.to_the_middle(training)
        at = time.monotonic()
        training.kill(1)
        outcome = training.wait(10)
        seconds = time.monotonic() - at
    bench.counts = outcome.counts
    if outcome.status[0] is None:
        raise Failed("the survivor still runs 10 s after its peer's death")
    if outcome.status[0] == 0:
        raise Failed("the survivor says that all went well")
    if outcome.status[0] < 0:
        raise Failed(f"the survivor died of signal {-outcome.status[0]}: {outcome.text[0]}")
    if seconds > 3:
        raise Failed(f"the survivor took {seconds:.1f} s to say: {outcome.text[0]}")
    bench.notes.append(f"error after {seconds:.1f} s: {' '.join(outcome.text[0].split())[:160]}")


def tolerant(bench, over):
    """1 % may stay missing, and 1 % is lost: what is missing stays within it, and replicas stay equal."""
    outcome = bench.train(over, MANY, netem="loss 1%", may_miss=0.01, options=["--loss-tolerance", "0.01"],
                          extra={"CLUSTAR_LOSS_WARMUP": "0"})
    if outcome.report["eligible_bytes"] == 0:
        raise Failed("nothing was eligible, so nothing was tried")
    report = outcome.report
    bench.notes.append(f"{report['missing_bytes']} bytes missing of {report['eligible_bytes']} eligible")


def dscp(bench, over):
    payload_has(bench, over, over.marked, over.dscp)


def dscp_fixed(bench, over):
    payload_has(bench, over, over.fixed, {26})


def payload_has(bench, over, settings, wanted):
    cable.count_dscp()
    try:
        outcome = bench.train(over, model="lr", extra=settings)
        counts = cable.dscp_counts()
    finally:
        cable.stop_counting_dscp()
    bench.notes.append("bytes by DSCP: " + ", ".join(f"{value}: {count}" for value, count in counts.items()))
    marked = sum(count for value, count in counts.items() if value in wanted)
    if marked < outcome.report["bytes_sent"]:
        raise Failed(f"{marked} bytes carry DSCP {sorted(wanted)}, less than the payload")


def run_conform(bench, over, only, limit):
    """Both processes of a check are at one end: what crosses the cable is for train to show."""
    command = [bench.program, "conform", "--plugin", bench.plugin, "--version", "12", "--freeze", "1"]
    command += ["--timeout", "120"]
    command += ["--only", only] if only else []
    before = cable.counters()
    done = subprocess.run(command, env=ranks.environment(over, "a"), capture_output=True, text=True, timeout=limit)
    bench.counts = cable.difference(cable.counters(), before)
    lines = [line.split("\r")[-1] for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0:
        raise Failed("; ".join(line for line in lines if "FAIL" in line.upper()) or done.stderr)
    bench.notes.append(lines[-1])


def conform(bench, over):
    run_conform(bench, over, SHORT_CHECKS.replace("close.finalize_clean,", "") if over.left_open else SHORT_CHECKS, 120)


def conform_all(bench, over):
    run_conform(bench, over, "", 900)


def latency(bench, over):
    """The tail of a round trip at 1 % loss, beside that of the transport that loses nothing on the same wire."""
    reference = ranks.TRANSPORTS["verbs" if over.roce else "tcp"]
    arms = [",".join(f"{name}={value}" for name, value in arm.environment.items()) for arm in (over, reference)]
    command = [bench.program, "perf", "--plugin", bench.plugin, "--env", arms[0], "--vs-env", arms[1]]
    wire = dataclasses.replace(over, environment={})
    results = bench.folder / "latency.json"
    before = cable.counters()
    with open(bench.folder / "server.txt", "w") as output:
        server = subprocess.Popen([*command, "--server"], env=ranks.environment(wire, "a"), stdout=output,
                                  stderr=subprocess.STDOUT)
    try:
        cable.disturb("loss 1%")
        client = [*command, "--client", cable.ADDRESS["a"], "--test", "latency", "--bytes", "1K", "--rounds", "5",
                  "--seconds", "0.5", "--json", str(results)]
        done = ask_until_served(client, ranks.environment(wire, "b"))
    finally:
        cable.calm()
        server.terminate()
        server.wait()
    bench.counts = cable.difference(cable.counters(), before)
    if done.returncode != 0:
        raise Failed(f"clustar perf: {done.stderr[-400:]} {done.stdout[-400:]}")
    row = json.loads(results.read_text())["results"][0]
    mine, its = row["p99_us"], row["p99_us_b"]
    if mine is None or its is None:
        raise Failed("fewer than 100 round trips: no p99")
    bench.notes.append(f"emulated processor: p50 {row['p50_us']:.0f} us against {row['p50_us_b']:.0f}, "
                       f"p99 {mine:.0f} us against {its:.0f}, {mine / its:.2f} of it")


def ask_until_served(client, environment):
    """A server that does not listen yet refuses."""
    until = time.monotonic() + 20
    while True:
        done = subprocess.run(client, env=environment, capture_output=True, text=True, timeout=600)
        if done.returncode == 0 or "refused" not in done.stderr or time.monotonic() > until:
            return done
        time.sleep(0.5)


def beside(bench, over):
    """rdma-core's and perftest's programs on the same devices while ours train."""
    with bench.training(over, model="mlp-small", steps=FEW, epochs=100) as training:
        if not cable.wait_for_bytes(STEP_BYTES, training.running, LIMIT):
            raise Failed(f"over before others began: {training.wait(1).last_words()}")
        for name, seconds in neighbours.run_all():
            bench.notes.append(f"{name} {seconds:.1f} s")
            if not training.running():
                raise Failed(f"ours ended beside {name}: {training.wait(1).last_words()}")
        # Ours must have gone on, too.
        if not cable.wait_for_bytes(STEP_BYTES, training.running, 30):
            raise Failed("ours does not go on after the others")
        bench.counts = training.wait(0).counts


def watched(bench, over):
    """The check of the cable itself: a run whose payload goes over lo has to be found out."""
    with bench.training(ranks.TRANSPORTS["tcp"], model="lr", steps=FEW, ends=("a", "a")) as training:
        outcome = training.wait(LIMIT)
    if outcome.status != [0, 0]:
        raise Failed(outcome.last_words())
    wrong = ranks.off_the_cable(over, outcome)
    if not any("another way" in sentence for sentence in wrong):
        raise Failed(f"a run over lo passes for one over the cable: {outcome.counts}")


CASES = {
    "clean": clean,
    "loss1": disturbed("loss 1%"),
    "tolerant": tolerant,
    "cut": cut,
    "killed": killed,
    "dscp": dscp,
    "dscp-fixed": dscp_fixed,
    "conform": conform,
    "conform-all": conform_all,
    "latency": latency,
    "beside": beside,
    "watched": watched,
    "loss0.1": disturbed("loss 0.1%"),
    "loss5": disturbed("loss 5%"),
    "reorder": disturbed("delay 3ms reorder 98%"),
    "duplicate": disturbed("duplicate 2%"),
    "corrupt": disturbed("corrupt 1%"),
}
SHORT = ("clean", "loss1", "tolerant", "cut", "killed")
SHORT_CHECKS = ("contract.two_processes,contract.sizes,contract.tags,contract.grouped*,contract.outstanding*,"
                "contract.*larger,errors.*,handshake.*,death.*survives,death.others_unharmed,close.finalize_clean,"
                "close.no_leak,reload.again")
# Of the short list: who may lose is tried at 1 % loss by `tolerant`; without a link UC's packets go by UD.
LEFT_OUT = {("mlt", "loss1"), ("mlt-ud", "loss1"), ("mlt-uc", "loss1"), ("mlt-uc", "cut")}
ONCE = ("conform", "watched", "beside")  # whatever carries: with the first transport only


def applies(case, over):
    if case == "tolerant":
        return over.lossy
    if case == "latency":
        return over.lossy
    if case == "dscp-fixed":
        return bool(over.fixed)
    return case != "dscp" or bool(over.dscp)


def chosen(options):
    """(name of the transport, name of the case), in order."""
    names = options.over.split(",")
    if unknown := [name for name in names if name not in ranks.TRANSPORTS]:
        raise SystemExit(f"programs.py: --over {unknown[0]}: there are {', '.join(ranks.TRANSPORTS)}")
    cases = options.cases.split(",") if options.cases else list(CASES) if options.all else [*SHORT, *ONCE]
    if unknown := [case for case in cases if case not in CASES]:
        raise SystemExit(f"programs.py: --cases {unknown[0]}: there are {', '.join(CASES)}")
    for name in names:
        for case in cases:
            if applies(case, ranks.TRANSPORTS[name]) and (case not in ONCE or name == names[0]):
                if options.cases or options.all or (name, case) not in LEFT_OUT:
                    yield name, case


def run_case(bench, name, case):
    """The case as a dictionary for the results; prints its line, and its counters."""
    bench.notes, bench.counts = [], {}
    began = time.monotonic()
    try:
        CASES[case](bench, ranks.TRANSPORTS[name])
        failure = None
    except Failed as error:
        failure = str(error)
    except (RuntimeError, OSError, subprocess.SubprocessError, neighbours.Failed):
        failure = " ".join(traceback.format_exc(limit=3).split())
    seconds = time.monotonic() - began
    print(f"{'FAIL' if failure else 'pass'}  {name:<7}{case:<12}{seconds:6.1f} s  {'; '.join(bench.notes)}"
          f"{' ' + failure if failure else ''}", flush=True)
    if bench.counts:
        print("\n".join(cable.table(bench.counts)), flush=True)
    counters = {f"{where} {what}": count for (where, what), count in bench.counts.items()}
    return {"over": name, "case": case, "seconds": round(seconds, 1), "failure": failure, "notes": bench.notes,
            "counters": counters}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder with clustar; the plugin is in ../lib")
    parser.add_argument("--over", default="tcp,mlt", help=f"comma list of {', '.join(ranks.TRANSPORTS)} [tcp,mlt]")
    parser.add_argument("--cases", help=f"comma list of {', '.join(CASES)} [{','.join((*SHORT, *ONCE))}]")
    parser.add_argument("--all", action="store_true", help="every case")
    options = parser.parse_args()
    todo = list(chosen(options))
    cable.lead_over_cable()
    bench = Bench(options)
    results = [run_case(bench, name, case) for name, case in todo]
    if "OUT" in os.environ:
        (pathlib.Path(os.environ["OUT"]) / "programs.json").write_text(json.dumps({"cases": results}, indent=1) + "\n")
    failed = [f"{result['over']} {result['case']}" for result in results if result["failure"]]
    print(f"{len(results) - len(failed)} of {len(results)} cases passed",
          *([f"failed: {', '.join(failed)}"] if failed else []), sep="; ")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
