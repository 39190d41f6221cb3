#include "bench/doctor/torch_checks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace clustar::bench::doctor {
namespace {

constexpr const char* kInstallTorch = "apt-get install --no-install-recommends python3-torch";
constexpr const char* kBuild =
    "build clustar where PyTorch's headers are: apt-get install --no-install-recommends python3-torch libtorch-dev "
    "pybind11-dev (docs/torch.md)";

Check check_python(const TorchFacts& facts) {
  if (!facts.python.empty()) return ok("Python", facts.python);
  return failed("Python", facts.asked + ": " + facts.why, "--python with the path of the Python that trains");
}

Check check_torch(const TorchFacts& facts) {
  if (facts.failed == "torch") {
    return failed("PyTorch", facts.why, fmt::format("{}, or --python with the Python that has it", kInstallTorch));
  }
  if (facts.failed == "distributed") {
    return failed("PyTorch", facts.torch + " has no torch.distributed", "a PyTorch that was built with it");
  }
  return ok("PyTorch", facts.torch);
}

Check check_backend(const TorchFacts& facts) {
  if (facts.failed == "missing") {
    const bool here = !facts.beside.empty();
    return failed("clustar_torch", facts.why,
                  here ? fmt::format("export PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}}", facts.beside) : kBuild);
  }
  if (facts.failed == "import") {
    return failed("clustar_torch", facts.why,
                  fmt::format("build it for this Python and its PyTorch: cmake --preset release "
                              "-DCLUSTAR_TORCH_PYTHON={}",
                              facts.asked));
  }
  if (facts.backend != facts.own_version) {
    return warning("clustar_torch",
                   fmt::format("{} is version {}, this command {}", facts.file, facts.backend, facts.own_version),
                   "one installation's on all ranks: PYTHONPATH says which is taken");
  }
  return ok("clustar_torch", facts.file);
}

Check check_group(const TorchFacts& facts) {
  if (facts.failed == "group") return failed("group", facts.why, "what it names; then this again");
  return ok("group", "a group of one rank was made, by the transport that the settings choose, and summed");
}

}  // namespace

std::vector<Check> torch_checks(const TorchFacts& facts) {
  std::vector<Check> checks{check_python(facts)};
  for (const auto check : {check_torch, check_backend, check_group}) {
    if (any_failed(checks)) break;
    checks.push_back(check(facts));
  }
  return checks;
}

std::string to_text(const TorchFacts& facts, const std::vector<Check>& checks) {
  return fmt::format(
      "Can torch.distributed use the backend clustar here? In this environment, by {}:\n{}\n{}: {}.\n", facts.asked,
      to_text(checks),
      any_failed(checks) ? "It cannot" : "It can: import clustar_torch, then init_process_group(\"clustar\")",
      counts(checks));
}

nlohmann::json to_json(const TorchFacts& facts, const std::vector<Check>& checks) {
  nlohmann::json json = to_json(checks);
  const auto known = [](const std::string& text) {
    return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
  };
  json["python"] = known(facts.python);
  json["torch"] = known(facts.torch);
  json["backend"] = known(facts.backend);
  json["file"] = known(facts.file);
  return json;
}

}  // namespace clustar::bench::doctor
