#include <fmt/format.h>

#include "bench/doctor/gdr_report.h"
#include "gdr/core/explain.h"

namespace clustar::bench::doctor {
namespace {

void add(std::string& list, const std::string& one) { list += (list.empty() ? "" : "; ") + one; }

Check check_gpu(const GdrReport& report, std::size_t gpu) {
  Check check{.name = "GPU " + report.machine.gpus[gpu].pci.address};
  if (!report.best[gpu]) {
    check.outcome = Outcome::kFailed;
    check.evidence = "there is no NIC";
    check.fix = "an RDMA NIC near the GPU";
    return check;
  }
  const gdr::Decision& pair = report.pairs[*report.best[gpu]];
  const bool direct = pair.receive != gdr::Tier::kPinnedHost;
  check.evidence = fmt::format("{}: receive {}, send {}, distance {}", pair.nic, gdr::to_string(pair.receive),
                               gdr::to_string(pair.send), gdr::to_string(pair.distance));
  check.outcome = !direct ? Outcome::kFailed : pair.notes.empty() ? Outcome::kOk : Outcome::kWarning;
  if (!direct) {
    for (const gdr::Explanation& one : gdr::explanations(pair)) {
      add(check.evidence, gdr::headline(one));
      add(check.fix, one.fix);
    }
  }
  for (const gdr::Note& note : pair.notes) {
    add(check.evidence, note.why);
    add(check.fix, note.fix);
  }
  return check;
}

}  // namespace

std::vector<Check> gdr_checks(const GdrReport& report) {
  std::vector<Check> checks;
  for (std::size_t gpu = 0; gpu < report.machine.gpus.size(); ++gpu) checks.push_back(check_gpu(report, gpu));
  // A machine without GPU has nothing to mend.
  const Outcome lacks = report.machine.gpus.empty() ? Outcome::kOk : Outcome::kWarning;
  for (const std::string& line : report.missing) checks.push_back({"machine", lacks, line, {}});
  for (const std::string& line : report.machine.problems) {
    checks.push_back({"read", report.machine.gpus_certain ? Outcome::kWarning : Outcome::kFailed, line,
                      "as root, or with a whole copy of the tree"});
  }
  return checks;
}

}  // namespace clustar::bench::doctor
