#include "transport/io/verbs/device_memory.h"

#include "gdr/registration_cache.h"
#include "gdr/topology/read_machine.h"
#include "transport/io/verbs/data_direct.h"
#include "transport/io/verbs/dmabuf_probe.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {
namespace {

gdr::Known known(bool yes) { return yes ? gdr::Known::kYes : gdr::Known::kNo; }

// The first port that says no decides.
void ask_dma_buf(std::span<const ProtectionDomain* const> domains, gdr::WayFacts& facts) {
  for (const ProtectionDomain* domain : domains) {
    const DmaBufProbe probe = ask_for_dma_buf(*domain);
    facts.dma_buf = known(probe.supported);
    facts.dma_buf_evidence = probe.text;
    if (!probe.supported) return;
  }
}

void ask_data_direct(std::span<const ProtectionDomain* const> domains, DeviceMemory& found) {
  gdr::WayFacts& facts = found.facts;
  if (facts.dma_buf != gdr::Known::kYes) {
    facts.data_direct = gdr::Known::kNo;
    facts.data_direct_evidence = "it goes by dma-bufs";
    return;
  }
  for (const ProtectionDomain* domain : domains) {
    const DataDirectProbe probe = DataDirect::library().probe(*domain);
    facts.data_direct = known(probe.supported);
    facts.data_direct_evidence = probe.text;
    found.data_direct_path = probe.pci_path;
    if (!probe.supported) return;
  }
}

}  // namespace

gdr::PageSizes DeviceMemory::pages() const {
  gdr::PageSizes pages = gdr::page_sizes();
  // Host memory in the part of a GPU's has the host's pages: what is around it may be nobody's.
  if (facts.emulated) pages.device = pages.host;
  return pages;
}

DeviceMemory find_device_memory(std::span<const ProtectionDomain* const> domains, const std::string& nic, bool software,
                                const MemoryWish& wish) {
  DeviceMemory found;
  gdr::WayFacts& facts = found.facts;
  facts.nic = nic;
  facts.offered = wish.offered;
  facts.emulated = wish.emulated;
  if (facts.offered && !facts.emulated) {
    facts.software = software;
    facts.peermem = gdr::peermem_file();
    ask_dma_buf(domains, facts);
    ask_data_direct(domains, found);
  }
  found.kinds = gdr::offered_kinds(facts);
  found.text = gdr::describe_ways(facts);
  found.force_flush = found.any() && (facts.emulated || facts.data_direct == gdr::Known::kYes);
  return found;
}

}  // namespace clustar::transport::io::verbs
