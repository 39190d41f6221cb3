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

  // Of GPU memory. The first one opens the copies and makes the arena, one of more memory than before may make a larger
  // one: that waits for the device, and belongs to setup. It holds mutex(), which the channel only tries meanwhile.
  // Errors: there are no copies for this memory, or no host memory for the arena; of a channel that is broken, its own.
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory);
  // GPU memory was registered. Without it nothing else here is of use.
  bool active() const { return active_.load(std::memory_order_acquire); }

  std::mutex& mutex() { return anchor_->mutex; }
  const std::optional<Error>& error() const { return error_; }
  gdr::Staging& core() { return core_; }

  // Errors (kInvalidArgument), which change nothing: a part is not within its registration; together they are more than
  // Options::most_bytes, or than all that is registered.
  Result<void> check(std::span<const Part> parts) const;
  // Of what check() allows. Nothing: too many are open.
  std::optional<Id> open(std::span<const Part> parts);
  // Ends copies, begins copies, and puts a larger arena that is ready in the place of one in which nothing lies.
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
  // NCCL waits for a request as long as it likes, so copies that never end would be a hang that nobody can explain.
  static constexpr Duration kStuckAfter = std::chrono::seconds(10);

  class DeviceMr;
  // Lets a registration outlive its channel.
  struct Anchor {
    std::mutex mutex;
    Stage* stage = nullptr;  // null once the channel is gone
    std::mutex lengths_mutex;
    std::vector<std::size_t> lengths;  // of the registrations that there are
  };
  struct Arena {
    std::uint32_t slices;
    std::unique_ptr<gdr::HostBuffer> memory;
    std::unique_ptr<Mr> mr;  // ends before the memory
  };
  struct Flight {
    gdr::DeviceCopy::Ticket ticket;
    gdr::Staging::Copy copy;
  };
  using Parts = std::array<Part, kMaxRecvParts>;

  Result<void> activate(const gdr::MemoryRef& memory);
  Result<void> make_arena(std::uint32_t slices);
  std::uint32_t parts_of_a_request() const { return direction_ == Direction::kSend ? 1 : kMaxRecvParts; }
  std::uint32_t wanted_slices() const;
  std::uint32_t most_slices() const;
  void end_copies();
  void give_up(const Error& error);
  std::string stuck() const;
  void begin_copies();
  // Once, when copies are under way and none has ended for kStuckAfter.
  void warn_of_stuck_copies(bool one_ended);
  void fail_with(const Error& error);
  void on_deregister(const Mr& mr);
  // Of `mr`; null: all.
  void end_copies(const Mr* mr);
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
  std::vector<Arena> arenas_;  // smaller ones first; none ends before the Stage: that would wait for the device
  std::size_t arena_ = 0;      // which of them is in use
  std::atomic<std::uint32_t> ready_slices_{0};  // of the largest
  gdr::Staging core_;
  std::vector<Parts> parts_;  // by message
  std::vector<Flight> flights_;
  TimePoint last_ended_{};  // or since when there are flights
  bool warned_ = false;
  bool driver_failed_ = false;  // by its word; what began is asked for all the same
  std::optional<Error> error_;
};

}  // namespace clustar::transport::staged
