// An endpoint: what a program binds together, and where its completions go.
#pragma once

#include <memory>

#include "libfabric_shim/provider/address_vector.h"
#include "libfabric_shim/provider/completion_queue.h"
#include "libfabric_shim/provider/engine.h"

namespace clustar::libfabric_shim::provider {

class Endpoint final : public fid_ep, private Completions {
 public:
  static int open(fid_domain* domain, fi_info* info, fid_ep** made, void* context);
  ~Endpoint() override;

  int bind(struct fid* what, std::uint64_t flags);
  int enable();
  // Waits at most ProviderSettings::close_timeout for what was sent.
  int close();
  int name(void* address, std::size_t* length) const;

  // One send or receive as libfabric's calls give it.
  struct Call {
    void* buffer = nullptr;
    std::size_t length = 0;
    fi_addr_t peer = FI_ADDR_UNSPEC;
    void* context = nullptr;
    bool tagged = false;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;
    std::uint64_t data = 0;
    std::uint64_t flags = 0;
    bool silent = false;  // no completion whatever the flags say: fi_inject
  };
  ssize_t send(const Call& call);
  ssize_t receive(const Call& call);
  ssize_t cancel(const void* context);
  std::uint64_t send_flags() const { return send_flags_; }
  std::uint64_t receive_flags() const { return receive_flags_; }

  // With the domain's lock.
  void progress() { engine_->progress(); }

 private:
  // Where the completions of one direction go.
  struct Side {
    CompletionQueue* queue = nullptr;
    bool selective = false;
    EventCounter* counter = nullptr;
  };

  Endpoint(Domain& domain, const fi_info& info, void* context);
  void complete(const Completion& completion) override;
  bool reports(const Side& side, std::uint64_t flags) const { return !side.selective || (flags & FI_COMPLETION) != 0; }
  int bind_queue(CompletionQueue& queue, std::uint64_t flags);
  int bind_counter(EventCounter& counter, std::uint64_t flags);
  ssize_t look(const Operation& operation, const Call& call, const Matcher::Receive& want);

  Domain& domain_;
  const std::uint64_t caps_;
  const std::uint64_t send_flags_;
  const std::uint64_t receive_flags_;
  bool enabled_ = false;
  AddressVector* vector_ = nullptr;
  Side sends_;
  Side receives_;
  std::unique_ptr<Engine> engine_;
};

// Tables of calls: libfabric_shim/provider/calls.cc.
fi_ops_msg& message_calls();
fi_ops_tagged& tagged_calls();

}  // namespace clustar::libfabric_shim::provider
