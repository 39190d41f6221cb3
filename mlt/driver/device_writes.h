// What goes into memory that the processor does not touch, in order, for all connections of an engine: what the
// device's MemoryWriter has no room for waits here.
//
// All calls with the engine's lock held. Each call of write, zero or flush has a number, counting up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/ring.h"
#include "transport/io/packet_io.h"

namespace clustar::mlt::driver {

class DeviceWrites {
 public:
  using Owner = std::uint32_t;  // a connection

  // `writer` outlives this.
  explicit DeviceWrites(transport::io::MemoryWriter& writer) : writer_(writer) {}

  // Any length; bytes are copied. The Mr of `target` lives until the operation ended, or drop(owner).
  void write(Owner owner, const transport::io::MemorySlice& target, std::span<const std::byte> bytes);
  void zero(Owner owner, const transport::io::MemorySlice& target);
  void flush(Owner owner, const transport::io::MemorySlice& target);
  // poll() gives it back once all that was asked for up to now has ended.
  void wait(Owner owner, std::uint32_t request);

  // Something waits for the writer's room: the code that fills this from packets takes no more of them.
  bool behind() const { return !waiting_.empty(); }
  // Something has not ended, so step() is to be called soon.
  bool busy() const { return finished() + 1 < next_; }
  // Hands over what there is room for. True: something moved. Error: the writer's end.
  Result<bool> step();
  struct Done {
    Owner owner = 0;
    std::uint32_t request = 0;
  };
  std::optional<Done> poll();

  // Returns when nothing of `owner` is read or written any more; what it waited for is forgotten.
  void drop(Owner owner);
  std::size_t waiting() const { return waiting_.size(); }

 private:
  enum class Kind : std::uint8_t { kWrite, kZero, kFlush };
  struct Waiting {
    Owner owner = 0;
    std::uint64_t number = 0;
    Kind kind = Kind::kWrite;
    transport::io::MemorySlice target{};  // what is left
    std::vector<std::byte> bytes{};       // of a write: the last `target.length` of them are left
  };
  struct Begun {
    Owner owner = 0;
    std::uint64_t number = 0;
  };
  struct Waiter {
    std::uint64_t number = 0;
    Done done{};
    bool dropped = false;
  };

  void ask(Owner owner, Kind kind, transport::io::MemorySlice target, std::span<const std::byte> bytes);
  // Begins from the front of `target` and `bytes` what there is room for, and takes it off.
  void begin(Owner owner, std::uint64_t number, Kind kind, transport::io::MemorySlice& target,
             std::span<const std::byte>& bytes);
  std::uint64_t finished() const;  // the newest number of which all and all before has ended

  transport::io::MemoryWriter& writer_;
  std::uint64_t next_ = 1;       // number
  Ring<Begun> begun_;            // the writer's operations that have not ended
  std::uint64_t ended_ = 0;      // the writer's operations
  std::deque<Waiting> waiting_;  // in order
  Ring<Waiter> waiters_;         // in order
  std::optional<Error> lost_;
};

}  // namespace clustar::mlt::driver
