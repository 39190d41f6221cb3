#!/usr/bin/env python3
"""Steps per second of `clustar train`, one rank, beside PyTorch's on the same core: the same layers, batch, loss and SGD.

Both compute on one thread. Rounds are interleaved (ours, PyTorch's, PyTorch's, ours, ...); of each run the median step
counts, without its first two, in which memory is mapped and kernels are made.
Needs PyTorch (Debian: python3-torch). Usage: pytorch_speed.py --clustar build/release/bin/clustar [--rounds 5] [MODEL ...]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# model -> (image size, classes, global batch)
SIZES = {"mlp": (28, 10, 128), "cnn": (28, 10, 128), "alexnet": (64, 10, 32), "vgg16": (64, 10, 8),
         "resnet50": (64, 10, 32), "gpt": (0, 0, 32)}
TOKENS, VOCABULARY, WIDTH, BLOCKS, HEADS = 64, 32, 128, 4, 4


def torch_models(torch):
    nn = torch.nn

    def conv(inputs, filters, kernel, stride=1, padding=0):
        return [nn.Conv2d(inputs, filters, kernel, stride, padding), nn.ReLU()]

    def mlp(_):
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10))

    def cnn(_):
        return nn.Sequential(*conv(1, 16, 5), nn.MaxPool2d(2), *conv(16, 32, 5), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))

    def alexnet(classes):
        return nn.Sequential(*conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2),
                             *conv(192, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1), *conv(256, 256, 3, 1, 1),
                             nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Dropout(),
                             nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
                             nn.Linear(4096, classes))

    def vgg16(classes):
        layers, inputs = [], 3
        for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += conv(inputs, filters, 3, 1, 1)
                inputs = filters
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(),
                             nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, classes))

    def normalised(inputs, filters, kernel, stride=1):
        return [nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(filters)]

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride, project):
            super().__init__()
            self.body = nn.Sequential(*normalised(inputs, width, 1), nn.ReLU(), *normalised(width, width, 3, stride),
                                      nn.ReLU(), *normalised(width, 4 * width, 1))
            self.around = nn.Sequential(*normalised(inputs, 4 * width, 1, stride)) if project else nn.Identity()

        def forward(self, x):
            return torch.relu(self.body(x) + self.around(x))

    def resnet50(classes):
        layers, inputs = [*normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for block in range(blocks):
                layers.append(Bottleneck(inputs, width, 2 if stage and not block else 1, not block))
                inputs = 4 * width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"),
                                     nn.Linear(4 * WIDTH, WIDTH))
            self.register_buffer("later", torch.triu(torch.full((TOKENS, TOKENS), float("-inf")), 1), persistent=False)

        def forward(self, x):
            q, k, v = (part.view(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
                       for part in self.qkv(self.ln_1(x)).split(WIDTH, 2))
            weights = torch.softmax(q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5 + self.later, -1)
            x = x + self.proj((weights @ v).transpose(1, 2).reshape(-1, TOKENS, WIDTH))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
            self.body = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.LayerNorm(WIDTH),
                                      nn.Linear(WIDTH, VOCABULARY, bias=False))

        def forward(self, x):
            return self.body(self.tokens(x) + self.places.weight).flatten(0, 1)

    return {"mlp": mlp, "cnn": cnn, "alexnet": alexnet, "vgg16": vgg16, "resnet50": resnet50, "gpt": lambda _: Gpt()}


def measure_torch(name, steps):
    """Prints {parameters, step_seconds}: in a process of its own, so that memory and threads are its own."""
    import torch
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    size, classes, batch = SIZES[name]
    model = torch_models(torch)[name](classes)
    if name == "gpt":
        x = torch.randint(VOCABULARY, (batch, TOKENS))
        labels = torch.randint(VOCABULARY, (batch * TOKENS,))
    else:
        x = torch.randn(batch, 1 if size == 28 else 3, size, size)
        labels = torch.randint(classes, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimiser.step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "step_seconds": seconds}))


def run(command, libraries=""):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


def ours(clustar, name, steps):
    size, classes, batch = SIZES[name]
    images = ["--image-size", size, "--classes", classes] if size > 28 else []
    # One fifth is held out.
    command = [clustar, "train", "--model", name, *images, "--batch", batch, "--examples", (steps * batch * 5 + 3) // 4,
               "--epochs", 1, "--lr", 0.001, "--quiet", "--json", "-"]
    return run([str(word) for word in command])["results"]


def compare(clustar, name, rounds, steps, libraries):
    seconds = {"ours": [], "torch": []}
    parameters = {}
    for index in range(rounds):
        for side in ("ours", "torch") if index % 2 == 0 else ("torch", "ours"):
            result = ours(clustar, name, steps) if side == "ours" else run(
                [sys.executable, __file__, "--torch", name, "--steps", str(steps)], libraries)
            seconds[side].append(statistics.median(result["step_seconds"][2:]))
            parameters[side] = result["parameters"]
    if parameters["ours"] != parameters["torch"]:
        sys.exit(f"{name}: {parameters['ours']} parameters here, {parameters['torch']} in PyTorch")
    size, _, batch = SIZES[name]
    rates = {side: [batch / value for value in values] for side, values in seconds.items()}
    ratios = sorted(a / b for a, b in zip(rates["ours"], rates["torch"]))
    print(f"{name:9} batch {batch:4}, {size or TOKENS}: ours {statistics.median(rates['ours']):8.1f}/s, "
          f"PyTorch {statistics.median(rates['torch']):8.1f}/s, ratio {statistics.median(ratios):.2f} "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(SIZES), metavar="MODEL")
    parser.add_argument("--clustar", default="build/release/bin/clustar")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--torch-libraries", default="", metavar="DIR",
                        help="folder with the libblas.so.3 that PyTorch shall use, such as OpenBLAS's: Debian's "
                             "reference BLAS, which it takes otherwise, is many times slower")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.torch:
        measure_torch(arguments.torch, arguments.steps)
        return
    for name in arguments.models:
        compare(arguments.clustar, name, arguments.rounds, arguments.steps, arguments.torch_libraries)


if __name__ == "__main__":
    main()
