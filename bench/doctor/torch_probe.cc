#include "bench/doctor/torch_probe.h"

#include <chrono>
#include <filesystem>
#include <sstream>

#include "bench/doctor/child.h"
#include "transport/base/own_folder.h"

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;

// To import PyTorch from a cold disk takes its time.
constexpr std::chrono::seconds kAnswer{120};

// Lines of a word, a tab and a text. `failed` is the last one.
constexpr const char* kProgram = R"(
import os, sys
def say(word, text):
    print(word, " ".join(str(text).split()), sep="\t", flush=True)
def fail(step, why):
    say("why", why)
    say("failed", step)
    os._exit(0)
say("python", f"{sys.executable}, {sys.version.split()[0]}")
try:
    import torch
except Exception as error:
    fail("torch", error)
say("torch", torch.__version__)
if not torch.distributed.is_available():
    fail("distributed", "")
try:
    import clustar_torch
except ModuleNotFoundError as error:
    fail("missing" if error.name == "clustar_torch" else "import", error)
except Exception as error:
    fail("import", error)
say("backend", clustar_torch.__version__)
say("file", clustar_torch.__file__)
try:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("clustar", store=store, rank=0, world_size=1)
    torch.distributed.all_reduce(torch.ones(1))
    clustar_torch.close()
except Exception as error:
    fail("group", str(error).split("Exception raised from")[0])
)";

std::string beside() {
  for (const std::string& folder : module_folders()) {
    for (const char* const below : {"python3/dist-packages", "python"}) {
      const fs::path path = fs::path(folder) / below;
      std::error_code error;
      if (fs::exists(path / "clustar_torch", error)) return fs::canonical(path, error).string();
    }
  }
  return {};
}

}  // namespace

TorchFacts torch_facts_of(const std::string& python) {
  TorchFacts facts{.asked = python, .own_version = CLUSTAR_VERSION, .beside = beside()};
  auto child = Child::start({python, "-c", kProgram});
  if (!child) {
    facts.failed = "python";
    facts.why = child.error().message;
    return facts;
  }
  const Child::Ended ended = child->wait(std::chrono::steady_clock::now() + kAnswer);
  std::istringstream in(ended.answer);
  for (std::string line; std::getline(in, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string word = line.substr(0, tab), text = line.substr(tab + 1);
    if (word == "python") facts.python = text;
    if (word == "torch") facts.torch = text;
    if (word == "backend") facts.backend = text;
    if (word == "file") facts.file = text;
    if (word == "why") facts.why = text;
    if (word == "failed") facts.failed = text;
  }
  if (ended.why.empty() || !facts.failed.empty()) return facts;
  // It died, in the step after the last that it told of.
  facts.failed = facts.python.empty()  ? "python"
                 : facts.torch.empty() ? "torch"
                                       : (facts.backend.empty() ? "import" : "group");
  const std::string said = last_line(ended.errors);
  facts.why = ended.why + (said.empty() ? "" : ": " + said);
  return facts;
}

}  // namespace clustar::bench::doctor
