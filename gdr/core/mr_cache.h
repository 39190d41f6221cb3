// Which memory is registered with a NIC, so that what is registered already is not registered again. Pure: a Registrar
// registers.
//
// The holder of a lease promises that its memory stays what it is until the lease ends, and the cache relies on nothing
// else. So memory is looked for only within what some lease covers as a whole at that moment: there is no
// notice of free() and munmap(), and a registration that were kept for later would go on to mean pages which that
// address has no more. For the same reason a registration whose covering leases have ended serves those within it that
// live, and no new one; the last of them deregisters.
//
// Ranges are widened to whole pages, which is what a NIC pins anyway. One that overlaps others, without lying within
// one, is registered by itself. A peer that has the key of a registration can reach all of it.
//
// Thread rule: one thread at a time, and the end of a lease counts as a call: a mutex outside. RegistrationCache has
// one. Lifetime rule: the cache outlives its leases, the registrar outlives the cache.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gdr/memory.h"
#include "transport/base/result.h"

namespace clustar::gdr {

// Memory that a NIC can reach; its end deregisters.
class Registration {
 public:
  Registration() = default;
  virtual ~Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
};

// Registers with one NIC.
class Registrar {
 public:
  // `pages`: whole ones. The descriptor of a dma-buf is the caller's. Must not call the cache. Never null.
  virtual Result<std::unique_ptr<Registration>> register_pages(const MemoryRef& pages, std::uint32_t access) = 0;

 protected:
  ~Registrar() = default;
};

// Names a dma-buf: two descriptors of one id have the same bytes at the same offset. The kernel's pair for a descriptor
// is one (`buffer_id` of gdr/registration_cache.h); a caller that knows its buffers better may give another.
struct BufferId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  auto operator<=>(const BufferId&) const = default;
};

// Bytes of a page, powers of two. A dma-buf has host pages: it may end within a device's.
struct PageSizes {
  std::uint64_t host = 4096;
  std::uint64_t device = 65536;
};

class MrCache {
  struct Entry;

 public:
  // A share of a registration.
  class Lease {
   public:
    Lease() = default;
    ~Lease() { end(); }
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          entry_(other.entry_),
          offset_(other.offset_),
          covers_(other.covers_) {}
    Lease& operator=(Lease&& other) noexcept;

    // Of no bytes: nothing is registered for it.
    bool empty() const { return cache_ == nullptr; }
    // Not of an empty lease.
    Registration& registration() const { return *entry_->registration; }
    // Of the memory's first byte within the registered pages; below a page's size where it was registered for this
    // lease.
    std::uint64_t offset() const { return offset_; }
    void end();

   private:
    friend class MrCache;
    Lease(MrCache& cache, Entry& entry, std::uint64_t offset, bool covers)
        : cache_(&cache), entry_(&entry), offset_(offset), covers_(covers) {}

    MrCache* cache_ = nullptr;
    Entry* entry_ = nullptr;
    std::uint64_t offset_ = 0;
    bool covers_ = false;  // all of the entry
  };

  struct Counts {
    std::uint64_t hits = 0;     // leases of what was registered already
    std::uint64_t misses = 0;   // registrations made
    std::uint64_t refused = 0;  // by the registrar
    std::size_t entries = 0;    // that live
    std::size_t retired = 0;    // of these: for leases within them only
    std::size_t leases = 0;     // that live, empty ones not
  };

  MrCache(Registrar& registrar, PageSizes pages) : registrar_(registrar), pages_(pages) {}
  MrCache(const MrCache&) = delete;
  MrCache& operator=(const MrCache&) = delete;

  // `access`: what the registrar makes of it; only equal ones share. `buffer`: for a dma-buf. A lease of length 0 is
  // empty, whatever else the memory says. Of several registrations that the memory lies within it is of the one that
  // ends last; of those that begins first. Error kInvalidArgument: no memory can be like that; otherwise the
  // registrar's, and then nothing has changed.
  Result<Lease> acquire(const MemoryRef& memory, std::uint32_t access, std::optional<BufferId> buffer = std::nullopt);

  const Counts& counts() const { return counts_; }

 private:
  // Memory whose registrations can stand for each other.
  struct Space {
    MemoryKind kind;
    std::uint32_t access;
    BufferId buffer;
    auto operator<=>(const Space&) const = default;
  };
  // Sorted by `begin`. `furthest`: of this one and those before it the entry that ends last. So what contains a range,
  // if anything does, is the `furthest` of the last slot that does not begin behind it, whatever lies between.
  struct Slot {
    std::uint64_t begin;
    Entry* entry;
    Entry* furthest;
  };
  using Slots = std::vector<Slot>;
  using Spaces = std::map<Space, Slots>;
  struct Entry {
    std::uint64_t begin;
    std::uint64_t end;
    std::unique_ptr<Registration> registration;
    Spaces::iterator space{};
    std::list<Entry>::iterator self{};
    std::size_t leases = 0;
    std::size_t covering = 0;  // of them; it can be found while there are any
  };
  // Addresses, or offsets of a dma-buf.
  struct Range {
    std::uint64_t first;  // byte of the memory
    std::uint64_t begin;  // of its pages
    std::uint64_t end;
  };

  Result<Range> range_of(const MemoryRef& memory, bool has_id) const;
  Entry* find(const Space& space, const Range& range);
  Entry& insert(const Space& space, const Range& range, std::unique_ptr<Registration> registration);
  void retire(Entry& entry);
  Lease lease(Entry& entry, const Range& range);
  void release(Entry& entry, bool covers);

  Registrar& registrar_;
  const PageSizes pages_;
  Counts counts_;
  std::list<Entry> entries_;
  Spaces spaces_;  // none is empty
};

}  // namespace clustar::gdr
