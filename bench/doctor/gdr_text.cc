// The report for a person.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/doctor/gdr_report.h"
#include "gdr/core/explain.h"

namespace clustar::bench::doctor {
namespace {

using Row = std::array<std::string, 6>;

std::string headline(const GdrReport& report) {
  const gdr::System& system = report.machine.system;
  std::string modules;
  if (system.open_modules != gdr::Known::kUnknown) {
    modules = system.open_modules == gdr::Known::kYes ? " (open modules)" : " (closed modules)";
  }
  const auto count = [](std::size_t number, const char* what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  return fmt::format("GPUDirect RDMA: {}, {}; driver {}{}; Linux {}; nvidia_peermem {}\n",
                     count(report.machine.gpus.size(), "GPU"), count(report.machine.nics.size(), "NIC"),
                     system.driver_version.empty() ? "not loaded" : system.driver_version, modules,
                     system.kernel_release.empty() ? "unknown" : system.kernel_release,
                     system.peermem.empty() ? "not loaded" : "loaded");
}

std::string table(const GdrReport& report) {
  std::vector<Row> rows = {{"GPU", "NIC", "distance", "receive", "send", "flush"}};
  const auto doubt = [](bool certain) { return certain ? "" : "?"; };
  for (std::size_t i = 0; i < report.pairs.size(); ++i) {
    const gdr::Decision& pair = report.pairs[i];
    const bool best = report.best[i / report.machine.nics.size()] == i;
    rows.push_back({pair.gpu, pair.nic + (best ? " *" : ""), to_string(pair.distance),
                    to_string(pair.receive) + std::string(doubt(pair.receive_certain)),
                    to_string(pair.send) + std::string(doubt(pair.send_certain)), to_string(pair.flush)});
  }
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "* the GPU's best NIC    ? a better way may be there: something about it is unknown\n";
}

// Each once, however many pairs it is about.
void add_once(std::vector<std::string>& lines, std::string line) {
  if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
}

std::string reasons(const GdrReport& report, bool all) {
  std::vector<std::string> refusals;
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < report.pairs.size(); ++i) {
    if (!all && report.best[i / report.machine.nics.size()] != i) continue;
    for (const gdr::Explanation& one : gdr::explanations(report.pairs[i])) {
      add_once(refusals, fmt::format("  {}\n    fix: {}\n", gdr::headline(one), one.fix));
    }
    for (const gdr::Note& note : report.pairs[i].notes) {
      add_once(notes, fmt::format("  {}\n    fix: {}\n", note.why, note.fix));
    }
  }
  std::string text;
  if (!refusals.empty()) {
    text += all ? "\nWhy nothing better:\n" : "\nWhy nothing better, for each GPU's best NIC (--all: for every NIC):\n";
    for (const std::string& line : refusals) text += line;
  }
  if (!notes.empty()) text += "\nWhat NCCL does not look at:\n";
  for (const std::string& line : notes) text += line;
  return text;
}

// What is known of devices that make no pair.
std::string devices(const GdrReport& report) {
  const auto place = [](const gdr::PciDevice& device) {
    return device.numa_node < 0 ? "no NUMA node named" : fmt::format("NUMA node {}", device.numa_node);
  };
  std::string text;
  for (const gdr::Gpu& gpu : report.machine.gpus)
    text += fmt::format("  GPU {}, {}\n", gpu.pci.address, place(gpu.pci));
  for (std::size_t n = 0; n < report.machine.nics.size(); ++n) {
    const gdr::Nic& nic = report.machine.nics[n];
    text += fmt::format("  {}: {}", nic.name,
                        nic.pci.address.empty() ? nic.no_pci : fmt::format("{}, {}", nic.pci.address, place(nic.pci)));
    const gdr::NicFacts& facts = report.nics[n];
    text += nic.rdma ? fmt::format("; takes dma-bufs: {} ({})\n", gdr::to_string(facts.dma_buf), facts.dma_buf_evidence)
                     : "; no RDMA\n";
  }
  return text.empty() ? text : "\nDevices:\n" + text;
}

std::string verdict(const GdrReport& report) {
  switch (report.verdict()) {
    case Verdict::kNothingToDo: return "Nothing to do: no GPU.\n";
    case Verdict::kOk: return "OK: every GPU has a NIC that writes to its memory.\n";
    case Verdict::kUnknown: return "Unknown: a PCI device could not be read (above), and may be a GPU.\n";
    case Verdict::kMissing: break;
  }
  std::string gpus;
  for (const std::string& gpu : report.gpus_without()) gpus += (gpus.empty() ? "" : ", ") + gpu;
  return fmt::format("Off: no NIC is known to write to the memory of GPU {}.\n", gpus);
}

}  // namespace

std::string to_text(const GdrReport& report, bool all) {
  std::string text = headline(report);
  text += report.pairs.empty() ? devices(report) : "\n" + table(report) + reasons(report, all);
  for (const std::string& line : report.missing) text += "\n" + line + "\n";
  if (!report.machine.problems.empty()) text += "\nCould not be read, and is left out:\n";
  for (const std::string& line : report.machine.problems) text += "  " + line + "\n";
  return text + "\n" + verdict(report);
}

}  // namespace clustar::bench::doctor
