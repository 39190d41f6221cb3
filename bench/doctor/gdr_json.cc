// The report for tools.
#include <nlohmann/json.hpp>

#include "bench/doctor/gdr_report.h"
#include "gdr/core/distance.h"
#include "gdr/core/explain.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }
json value_or_null(const std::optional<std::string>& value) { return value ? json(*value) : json(nullptr); }

const char* to_string(gdr::Iommu iommu) {
  switch (iommu) {
    case gdr::Iommu::kOff: return "off";
    case gdr::Iommu::kPassthrough: return "passthrough";
    case gdr::Iommu::kTranslates: return "translates";
    case gdr::Iommu::kUnknown: break;
  }
  return "unknown";
}

const char* to_string(gdr::Direction direction) {
  return direction == gdr::Direction::kSend ? "send" : direction == gdr::Direction::kReceive ? "receive" : "both";
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kMissing: return "missing";
    case Verdict::kUnknown: return "unknown";
    case Verdict::kNothingToDo: return "nothing to do";
  }
  return "?";
}

json pci(const gdr::Machine& machine, const gdr::PciDevice& device) {
  if (device.address.empty()) return nullptr;
  return {{"address", device.address},
          {"path", device.path},
          {"numa_node", device.numa_node},
          {"switches", gdr::switches_above(machine, device)},
          {"iommu", to_string(device.iommu)}};
}

json to_json(const gdr::Decision& decision) {
  json refused = json::array();
  for (const gdr::Explanation& one : gdr::explanations(decision)) {
    json tiers = json::array();
    for (const gdr::Tier tier : one.tiers) tiers.push_back(gdr::to_string(tier));
    refused.push_back({{"tiers", tiers},
                       {"direction", to_string(one.direction)},
                       {"certain", one.certain},
                       {"why", one.why},
                       {"fix", one.fix}});
  }
  json notes = json::array();
  for (const gdr::Note& note : decision.notes) notes.push_back({{"why", note.why}, {"fix", note.fix}});
  return {{"gpu", decision.gpu},
          {"nic", decision.nic},
          {"distance", gdr::to_string(decision.distance)},
          {"receive", gdr::to_string(decision.receive)},
          {"receive_certain", decision.receive_certain},
          {"send", gdr::to_string(decision.send)},
          {"send_certain", decision.send_certain},
          {"flush", gdr::to_string(decision.flush)},
          {"flush_why", decision.flush_why},
          {"pcie_mapping", decision.pcie_mapping},
          {"refused", refused},
          {"notes", notes}};
}

}  // namespace

json to_json(const GdrReport& report) {
  const gdr::Machine& machine = report.machine;
  json gpus = json::array();
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    const gdr::GpuFacts& facts = report.gpus[g];
    gpus.push_back({{"pci", pci(machine, machine.gpus[g].pci)},
                    {"not_asked", text_or_null(facts.not_asked)},
                    {"direct_rdma", gdr::to_string(facts.direct_rdma)},
                    {"dma_buf", gdr::to_string(facts.dma_buf)},
                    {"cuda_flush", gdr::to_string(facts.cuda_flush)},
                    {"c2c", gdr::to_string(facts.c2c)},
                    {"compute_capability", facts.compute_capability},
                    {"cuda_version", facts.cuda_version},
                    {"best_nic", report.best[g] ? json(report.pairs[*report.best[g]].nic) : json(nullptr)}});
  }
  json nics = json::array();
  for (std::size_t n = 0; n < machine.nics.size(); ++n) {
    const gdr::Nic& nic = machine.nics[n];
    nics.push_back({{"name", nic.name},
                    {"rdma", nic.rdma},
                    {"pci", pci(machine, nic.pci)},
                    {"no_pci", text_or_null(nic.no_pci)},
                    {"interfaces", nic.interfaces},
                    {"dma_buf", gdr::to_string(report.nics[n].dma_buf)},
                    {"dma_buf_evidence", text_or_null(report.nics[n].dma_buf_evidence)},
                    {"data_direct", gdr::to_string(report.nics[n].data_direct)}});
  }
  json pairs = json::array();
  for (const gdr::Decision& pair : report.pairs) pairs.push_back(to_json(pair));
  const gdr::System& system = machine.system;
  const gdr::Settings& settings = report.settings;
  json results = to_json(gdr_checks(report));
  results.update({{"verdict", to_string(report.verdict())},
                  {"gpus_without", report.gpus_without()},
                  {"gpus", gpus},
                  {"nics", nics},
                  {"pairs", pairs},
                  {"system",
                   {{"kernel", text_or_null(system.kernel_release)},
                    {"driver", text_or_null(system.driver_version)},
                    {"open_modules", gdr::to_string(system.open_modules)},
                    {"peermem", text_or_null(system.peermem)},
                    {"gdrcopy_module", gdr::to_string(system.gdrcopy_module)}}},
                  {"settings",
                   {{"NCCL_NET_GDR_LEVEL", value_or_null(settings.gdr_level)},
                    {"NCCL_NET_GDR_READ", value_or_null(settings.gdr_read)},
                    {"NCCL_NET_GDR_C2C", value_or_null(settings.gdr_c2c)},
                    {"NCCL_DMABUF_ENABLE", value_or_null(settings.dmabuf_enable)},
                    {"NCCL_IB_DATA_DIRECT", value_or_null(settings.data_direct)},
                    {"NCCL_NET_FORCE_FLUSH", value_or_null(settings.force_flush)},
                    {"NCCL_GDRCOPY_ENABLE", value_or_null(settings.gdrcopy_enable)},
                    {"NCCL_GDRCOPY_FLUSH_ENABLE", value_or_null(settings.gdrcopy_flush)}}},
                  {"missing", report.missing},
                  {"problems", machine.problems}});
  return results;
}

}  // namespace clustar::bench::doctor
