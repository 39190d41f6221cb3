"""`clustar train --device cuda` in a GPU check: beside the processor, and with gradients summed by NCCL in the GPU's memory.

The same steps run on the emulated device (docs/cuda.md), where their times mean nothing.
"""

import json
import os
import subprocess
import time

LIMIT_S = 150  # all rows together
ROW_LIMIT_S = 60
# Of the loss after the last epoch. A GPU adds in another order than the processor; over a few dozen steps that grows.
APART = 1e-3
DIGITS = ["--examples", "2000", "--epochs", "2"]
FEW_DIGITS = ["--examples", "300", "--epochs", "1"]
GPT = ["--width-divisor", "4", "--examples", "200", "--epochs", "1"]
SMALL_GPT = ["--width-divisor", "16", "--batch", "16", "--examples", "32", "--epochs", "1"]
IMAGES = ["--width-divisor", "4", "--classes", "4", "--image-size", "64", "--examples", "64", "--epochs", "1", "--lr", "0.01"]
# Model: options on a GPU, on the emulated device; none: not there, where it would take minutes.
MODELS = {"lr": (DIGITS, FEW_DIGITS), "mlp": (DIGITS, None), "cnn": (DIGITS, FEW_DIGITS), "gpt": (GPT, SMALL_GPT),
          "alexnet": (IMAGES, None), "vgg16": (IMAGES, None), "resnet50": (IMAGES, None)}
LOSSY = {"CLUSTAR_TRANSPORT": "mlt", "CLUSTAR_LOSS_WARMUP": "0"}
TOLERANCE = 0.05  # of 1 % a message of 200 kB may lose no packet of loopback
# By NCCL over the plugin, two ranks that share the GPU: environment, options.
OVER_NCCL = {"nccl-tcp": ({"CLUSTAR_TRANSPORT": "tcp"}, []), "nccl-mlt": ({"CLUSTAR_TRANSPORT": "mlt"}, []),
             "nccl-lossy": (LOSSY, ["--loss-tolerance", str(TOLERANCE), "--inject-loss", "0.02"]),
             # Gradients are marked where the plugin takes a GPU's memory; otherwise they go by NCCL's own buffers.
             "nccl-direct": ({**LOSSY, "CLUSTAR_LOSS_IMPORTANT": "0.3"},
                             ["--all-reduce", "all-to-all", "--loss-tolerance", str(TOLERANCE), "--inject-loss", "0.02"])}


class Place:
    """Where the steps run. driver, nccl: files, or empty for what the loader finds; why_no_nccl: empty where there is one."""

    def __init__(self, clustar, environment, driver="", nccl="", why_no_nccl=""):
        self.clustar, self.environment, self.driver, self.nccl = clustar, environment, driver, nccl
        self.why_no_nccl = why_no_nccl
        self.emulated = bool(driver)

    def on_gpu(self):
        return ["--device", "cuda", *(["--cuda-driver", self.driver] if self.driver else [])]


def train(place, options, environment, work, limit):
    """(what went wrong, results)"""
    path = os.path.join(work, "train.json")
    if os.path.exists(path):
        os.unlink(path)  # an earlier run's
    command = [place.clustar, "train", "--quiet", "--json", path, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL,
                              env={**place.environment, **environment}, errors="replace", start_new_session=True)
    except OSError as error:
        return f"{place.clustar} does not start: {error.strerror}", None
    except subprocess.TimeoutExpired:
        return f"did not end within {limit:.0f} s and was stopped", None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        return f"ended with status {done.returncode}: {said[-1]}", None
    try:
        with open(path, encoding="utf-8") as stream:
            return "", json.load(stream)["results"]
    except (OSError, ValueError, KeyError) as error:
        return f"wrote no results: {error}", None


def apart(one, other):
    # JSON has no number that is none.
    if one["loss"] is None or other["loss"] is None:
        return float("inf")
    return abs(one["loss"] - other["loss"]) / max(abs(other["loss"]), 1e-9)


def wrong_device(results, emulated):
    device = results.get("compute_device") or {}
    if device.get("kind") != "cuda" or bool(device.get("emulated")) != emulated:
        return f"it computed on {device}, not on {'an emulated device' if emulated else 'a GPU'}"
    return ""


def beside_the_processor(place, model, options, work, limit):
    row = {"name": model}
    end = time.monotonic() + limit
    said, gpu = train(place, ["--model", model, *options, *place.on_gpu()], {}, work, limit)
    if said:
        return {**row, "outcome": "failed", "reason": f"on the GPU: {said}"}
    said, cpu = train(place, ["--model", model, *options], {}, work, max(end - time.monotonic(), 1))
    if said:
        return {**row, "outcome": "failed", "reason": f"on the processor: {said}"}
    row.update(loss=gpu["loss"], cpu_loss=cpu["loss"], math=(gpu["compute_device"] or {}).get("math"),
               images_per_s=gpu["images_per_second"], cpu_images_per_s=cpu["images_per_second"])
    reason = wrong_device(gpu, place.emulated)
    if not reason and not apart(gpu, cpu) <= APART:
        reason = f"the loss is {gpu['loss']}, the processor's {cpu['loss']}: more than {APART:.0e} apart"
    return {**row, "outcome": "failed" if reason else "passed", "reason": reason or f"the losses are {apart(gpu, cpu):.0e} apart"}


def over_nccl(place, name, work, limit):
    environment, options = OVER_NCCL[name]
    row = {"name": name}
    if place.why_no_nccl:
        return {**row, "outcome": "skipped", "reason": place.why_no_nccl}
    common = ["--model", "mlp-small", *(FEW_DIGITS if place.emulated else DIGITS), "--ranks", "2", "--collective", "nccl",
              "--nccl-library", place.nccl, *options, *place.on_gpu()]
    said, results = train(place, common, {"NCCL_PROTO": "Simple", **environment}, work, limit)
    if said:
        return {**row, "outcome": "failed", "reason": said}
    row.update(loss=results["loss"], images_per_s=results["images_per_second"], missing_bytes=results["missing_bytes"],
               eligible_bytes=results["eligible_bytes"])
    reason = wrong_device(results, place.emulated)
    if not reason and results["replicas_identical"] is not True:
        reason = "replicas differ"
    if not reason and results["update"] != "device":
        reason = f"parameters were updated on the {results['update']}, not on the device"
    if not reason and name == "nccl-direct" and not results["expected_contributions"]:
        reason = "no exchange: no contributions were expected"
    if not reason and name in ("nccl-lossy", "nccl-direct") and not 0 < results["missing_bytes"] <= TOLERANCE * results["eligible_bytes"]:
        reason = f"{results['missing_bytes']} bytes are missing of {results['eligible_bytes']} eligible"
    told = f"replicas identical, {results['missing_bytes']} bytes missing of {results['eligible_bytes']} eligible"
    return {**row, "outcome": "failed" if reason else "passed", "reason": reason or told}


def run(place, work, limit=LIMIT_S):
    """The section `trainer` of results.json: outcome, reason, emulated, rows. limit: seconds for all."""
    if not os.path.isfile(place.clustar):
        return {"outcome": "skipped", "reason": f"clustar is not built ({place.clustar})", "emulated": place.emulated, "rows": []}
    end = time.monotonic() + limit
    rows = []
    for name in [*MODELS, *OVER_NCCL]:
        left = min(end - time.monotonic(), ROW_LIMIT_S)
        options = MODELS.get(name, (None, None))[1 if place.emulated else 0]
        if left < 5:
            row = {"name": name, "outcome": "skipped", "reason": "no time left"}
        elif name in OVER_NCCL:
            row = over_nccl(place, name, work, left)
        elif options is None:
            row = {"name": name, "outcome": "skipped", "reason": "takes minutes on the emulated device; its kernels are those of the others"}
        else:
            row = beside_the_processor(place, name, options, work, left)
        rows.append(row)
    failed = [f"{row['name']}: {row['reason']}" for row in rows if row["outcome"] == "failed"]
    passed = sum(row["outcome"] == "passed" for row in rows)
    section = {"emulated": place.emulated, "rows": rows}
    if failed:
        return {"outcome": "failed", "reason": "; ".join(failed), **section}
    if not passed:
        return {"outcome": "skipped", "reason": rows[0]["reason"], **section}
    return {"outcome": "passed", "reason": f"{passed} of {len(rows)} rows passed, the rest skipped" if passed < len(rows)
            else f"{passed} rows", **section}


def lines(section):
    """Of results.md."""
    if not section or not section.get("rows"):
        return []
    emulated = section["emulated"]
    out = ["", "## Training on the " + ("emulated device" if emulated else "GPU"), "",
           "| run | outcome | loss, processor's | images/s, processor's | what |", "|---|---|---|---|---|"]
    for row in section["rows"]:
        losses = [f"{row[key]:.5f}" for key in ("loss", "cpu_loss") if row.get(key) is not None]
        speeds = [f"{row[key]:.0f}" for key in ("images_per_s", "cpu_images_per_s") if key in row]
        speed = "emulated: not measured" if emulated and speeds else ", ".join(speeds) or "-"
        math = f"; {row['math']}" if row.get("math") else ""
        out.append(f"| {row['name']} | {row['outcome']} | {', '.join(losses) or '-'} | {speed} | {row['reason']}{math} |")
    return out
