#include "transport/verbs/device_memory.h"

#include "gdr/topology/read_machine.h"
#include "transport/io/verbs/data_direct.h"
#include "transport/io/verbs/dmabuf_probe.h"

namespace clustar::transport::verbs {
namespace {

gdr::Known known(bool yes) { return yes ? gdr::Known::kYes : gdr::Known::kNo; }

// The first port that says no decides.
void ask_dma_buf(std::span<const Port> ports, gdr::WayFacts& facts) {
  for (const Port& port : ports) {
    const io::verbs::DmaBufProbe probe = io::verbs::ask_for_dma_buf(port.domain);
    facts.dma_buf = known(probe.supported);
    facts.dma_buf_evidence = probe.text;
    if (!probe.supported) return;
  }
}

void ask_data_direct(std::span<const Port> ports, DeviceMemory& found) {
  gdr::WayFacts& facts = found.facts;
  if (facts.dma_buf != gdr::Known::kYes) {
    facts.data_direct = gdr::Known::kNo;
    facts.data_direct_evidence = "it goes by dma-bufs";
    return;
  }
  for (const Port& port : ports) {
    const io::verbs::DataDirectProbe probe = io::verbs::DataDirect::library().probe(port.domain);
    facts.data_direct = known(probe.supported);
    facts.data_direct_evidence = probe.text;
    found.data_direct_path = probe.pci_path;
    if (!probe.supported) return;
  }
}

}  // namespace

DeviceMemory find_device_memory(std::span<const Port> ports, const Settings& settings) {
  DeviceMemory found;
  gdr::WayFacts& facts = found.facts;
  facts.nic = ports.front().info.device;
  facts.offered = settings.offer_gpu_memory;
  facts.emulated = settings.emulate_gpu;
  if (facts.offered && !facts.emulated) {
    for (const Port& port : ports) facts.software = facts.software || port.info.pci_path.empty();
    facts.peermem = gdr::peermem_file();
    ask_dma_buf(ports, facts);
    ask_data_direct(ports, found);
  }
  found.kinds = gdr::offered_kinds(facts);
  found.text = gdr::describe_ways(facts);
  found.force_flush = facts.emulated || facts.data_direct == gdr::Known::kYes;
  if (!found.any()) found.force_flush = false;
  return found;
}

}  // namespace clustar::transport::verbs
