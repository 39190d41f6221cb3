// Completion queues and counters. Reading one drives the endpoints that are bound to it.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "libfabric_shim/provider/domain.h"

namespace clustar::libfabric_shim::provider {

class Endpoint;

// Those that a queue or a counter belongs to, each once.
class Drives {
 public:
  explicit Drives(Domain& domain) : domain_(domain) {}
  void add(Endpoint& endpoint);
  void remove(Endpoint& endpoint) { std::erase(endpoints_, &endpoint); }
  bool empty() const { return endpoints_.empty(); }
  void progress();
  Domain& domain() { return domain_; }

 private:
  Domain& domain_;
  std::vector<Endpoint*> endpoints_;
};

class CompletionQueue final : public fid_cq {
 public:
  static int open(fid_domain* domain, fi_cq_attr* attr, fid_cq** made, void* context);
  CompletionQueue(Domain& domain, fi_cq_format format, void* context);

  // `source` is the fi_addr_t of a received message's sender.
  void write(const Completion& completion, fi_addr_t source);
  Drives& drives() { return drives_; }

  // As libfabric's calls.
  ssize_t read(void* buffer, std::size_t count, fi_addr_t* sources);
  ssize_t wait(void* buffer, std::size_t count, fi_addr_t* sources, int timeout_ms);
  ssize_t read_error(fi_cq_err_entry* entry);
  void signal() { signalled_ = true; }
  int close();

 private:
  struct Entry {
    fi_cq_err_entry what{};
    fi_addr_t source = FI_ADDR_NOTAVAIL;
  };
  std::size_t put(const Entry& entry, void* at) const;

  const fi_cq_format format_;
  Drives drives_;
  std::deque<Entry> entries_;
  std::atomic<bool> signalled_{false};
};

class EventCounter final : public fid_cntr {
 public:
  static int open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** made, void* context);
  EventCounter(Domain& domain, void* context);

  Drives& drives() { return drives_; }
  void count(bool success) { ++(success ? value_ : errors_); }
  std::uint64_t value();   // after progress
  std::uint64_t errors();  // after progress
  int wait(std::uint64_t threshold, int timeout_ms);
  int close();

  // With the domain's lock, which set() and add() take.
  std::uint64_t value_ = 0;
  std::uint64_t errors_ = 0;

 private:
  Drives drives_;
};

}  // namespace clustar::libfabric_shim::provider
