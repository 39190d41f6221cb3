// Memory registered with a NIC, as waist 2 hands it on.
#pragma once

#include <functional>
#include <utility>

#include "gdr/registration_cache.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/registrations.h"

namespace clustar::transport::io::verbs {

// What the backends of this folder make of reg_mr; they take each other's, within one protection domain. Other memory
// may share its region.
class Registered final : public Mr {
 public:
  // `lease`: of a cache over this domain alone; empty: of no bytes. `quiesce` returns when no queue pair reads or
  // writes the memory any more: the NIC stops with an error at a request whose memory is gone. Runs in the thread of
  // ~Mr.
  Registered(const gdr::MemoryRef& memory, const ProtectionDomain& domain, gdr::RegistrationCache::Lease lease,
             std::function<void()> quiesce)
      : Mr(memory), domain_(domain.get()), lease_(std::move(lease)), quiesce_(std::move(quiesce)) {}
  ~Registered() override {
    if (quiesce_) quiesce_();
  }

  bool is_of(const ibv_pd* domain) const { return domain_ == domain; }
  // The rest: not of memory of no bytes. Offsets count from the memory's first byte.
  const MemoryRegion& region() const { return static_cast<const DomainRegions&>(lease_.registration()).in(0); }
  std::size_t in_region(std::size_t offset) const { return lease_.offset() + offset; }
  std::uint64_t address(std::size_t offset) const { return region().address(in_region(offset)); }
  std::uint32_t rkey() const { return region().rkey(); }
  ibv_sge slice(std::size_t offset, std::size_t length) const { return region().slice(in_region(offset), length); }

  // Who else has requests with it, and adds what waits for those. Before the memory is used.
  void also_quiesce(std::function<void()> quiesce) {
    quiesce_ = [first = std::move(quiesce_), quiesce = std::move(quiesce)] {
      if (first) first();
      quiesce();
    };
  }

 private:
  const ibv_pd* const domain_;
  gdr::RegistrationCache::Lease lease_;
  std::function<void()> quiesce_;
};

// `mr` if it is one of this domain, otherwise null: a request with another domain's memory would stop its queue pair.
inline const Registered* registered_in(const ibv_pd* domain, const Mr* mr) {
  const auto* registered = dynamic_cast<const Registered*>(mr);
  return registered != nullptr && registered->is_of(domain) ? registered : nullptr;
}

}  // namespace clustar::transport::io::verbs
