// What both ends of a channel share: the arena in host memory, the copies between it and the GPU, and the registrations
// of GPU memory.
//
// Thread rule: reg_mr(), active() and the ends of registrations: any thread. The rest is the channel's, with mutex()
// held. Lifetime rule: stop() comes before the inner channel ends, and that before the Stage does.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gdr/core/staging.h"
#include "gdr/device_copy.h"
#include "transport/api/transport.h"
#include "transport/staged/options.h"

namespace clustar::transport::staged {

class Stage {
 public:
  using Id = gdr::Staging::Id;
  using Direction = gdr::Staging::Direction;
  // Of host memory, with the inner channel.
  using Register = std::function<Result<std::unique_ptr<Mr>>(const gdr::MemoryRef&)>;
  struct Part {
    const Mr* mr = nullptr;  // of reg_mr(); null: host memory, or the registration ended
    std::byte* device = nullptr;
    std::size_t staged = 0;  // bytes; 0: nothing, or it is host memory
  };

  Stage(Context& context, Direction direction, std::uint32_t max_messages, Register with_inner);

  static bool is_device(const Mr& mr) { return mr.memory().kind != gdr::MemoryKind::kHost; }
  bool takes(gdr::MemoryKind kind) const { return (context_.options.kinds & gdr::bit(kind)) != 0; }

  // Of GPU memory. The first one opens the copies and makes the arena: that may take long, and belongs to setup.
  // Errors: there are no copies for this memory, or no host memory for the arena; of a channel that is broken, its own.
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory);
  // GPU memory was registered. Without it nothing else here is of use.
  bool active() const { return active_.load(std::memory_order_acquire); }

  std::mutex& mutex() { return anchor_->mutex; }
  const std::optional<Error>& error() const { return error_; }
  gdr::Staging& core() { return core_; }

  // Nothing: too many are open.
  std::optional<Id> open(std::span<const Part> parts);
  // Ends copies, begins copies, and makes the arena as large as it has to be.
  void advance();
  // What the inner channel is to send from or receive into. Of a part without bytes: memory that nobody uses.
  const Mr& host_mr(Id message, std::uint32_t part) const;
  std::size_t host_offset(Id message, std::uint32_t part) const;
  void release(Id message);

  // The inner channel's error: of a message that it had, or when it was to take one. What it has besides goes on.
  void inner_failed(std::optional<Id> message, const Error& error);
  // No byte is copied after this, and no registration is known any more. Waits for copies, kPatience at most.
  void stop();

 private:
  static constexpr Duration kPatience = std::chrono::seconds(1);

  class DeviceMr;
  // Lets a registration outlive its channel.
  struct Anchor {
    std::mutex mutex;
    Stage* stage = nullptr;  // null once the channel is gone
  };
  struct Flight {
    gdr::DeviceCopy::Ticket ticket;
    gdr::Staging::Copy copy;
  };
  using Parts = std::array<Part, kMaxRecvParts>;

  Result<void> activate(const gdr::MemoryRef& memory);
  Result<void> make_arena(std::uint32_t slices);
  void end_copies();
  void give_up(const Error& error);
  std::string stuck() const;
  void begin_copies();
  void fail_with(const Error& error);
  void on_deregister(const Mr& mr);
  // Of `mr`; null: all.
  void settle(const Mr* mr);
  bool uses(Id message, const Mr& mr) const;

  Context& context_;
  const Direction direction_;
  const Register with_inner_;
  std::shared_ptr<Anchor> anchor_;
  std::atomic<bool> active_{false};
  std::atomic<bool> broken_{false};  // error_ is set
  std::unique_ptr<gdr::DeviceCopy> copy_;
  // Registrations end before the memory does, and that before `copy_`.
  std::unique_ptr<gdr::HostBuffer> nothing_;
  std::unique_ptr<Mr> nothing_mr_;
  std::unique_ptr<gdr::HostBuffer> arena_;
  std::unique_ptr<Mr> arena_mr_;
  gdr::Staging core_;
  std::vector<Parts> parts_;  // by message
  std::vector<Flight> flights_;
  std::optional<Error> error_;
};

}  // namespace clustar::transport::staged
