// MrCache with what it needs of the system: a mutex, and descriptors of dma-bufs, which callers close after the call.
// One for each NIC.
//
// Thread rule: any thread, the ends of leases included. Registering is done under the mutex, so that two threads do not
// register the same memory; a lookup of another thread waits meanwhile. Nothing of a data path looks up.
// Lifetime rule: as MrCache's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "gdr/core/mr_cache.h"
#include "gdr/memory.h"
#include "transport/base/result.h"

namespace clustar::gdr {

// By fstat. Two exports of one range of device memory are two buffers to the kernel.
Result<BufferId> buffer_id(int fd);

// Of the kernel's pages, and a GPU's 64 KiB.
PageSizes page_sizes();

class RegistrationCache {
 public:
  class Lease {
   public:
    Lease() = default;
    ~Lease() { end(); }
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;

    bool empty() const { return share_.empty(); }
    // The registrar's own. Not of an empty lease.
    Registration& registration() const;
    std::uint64_t offset() const { return share_.offset(); }
    void end();

   private:
    friend class RegistrationCache;
    Lease(RegistrationCache& cache, MrCache::Lease share) : cache_(&cache), share_(std::move(share)) {}

    RegistrationCache* cache_ = nullptr;  // as long as `share_` is not empty
    MrCache::Lease share_;
  };

  explicit RegistrationCache(Registrar& registrar, PageSizes pages = page_sizes());

  // As MrCache does. Without `buffer` a dma-buf has the id that buffer_id() finds. Its descriptor is duplicated when it
  // is registered, and the duplicate closed after that ended.
  Result<Lease> acquire(const MemoryRef& memory, std::uint32_t access, std::optional<BufferId> buffer = std::nullopt);
  MrCache::Counts counts() const;

 private:
  class Keeper final : public Registrar {
   public:
    explicit Keeper(Registrar& registrar) : registrar_(registrar) {}
    Result<std::unique_ptr<Registration>> register_pages(const MemoryRef& pages, std::uint32_t access) override;

   private:
    Registrar& registrar_;
  };

  Keeper keeper_;
  mutable std::mutex mutex_;
  MrCache cache_;
};

}  // namespace clustar::gdr
