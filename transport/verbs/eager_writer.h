// Brings eager messages from their landing places into memory of GPUs, which the CPU must not touch: the NIC writes
// them by a queue pair that is connected to itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/io/verbs/loop.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/nic.h"

namespace clustar::transport::verbs {

class EagerWriter {
 public:
  // By the NIC's first port. `landing` outlives it.
  static Result<std::unique_ptr<EagerWriter>> make(Nic& nic, const PortRegions& landing);
  EagerWriter(const EagerWriter&) = delete;

  // [offset, offset + bytes) of the landing memory, an eager message in `place` for the receive of `group`, goes to
  // `target` + `to`. Once per place until take() has answered it: so there is always room.
  Result<void> write(std::uint32_t place, std::uint32_t group, std::size_t offset, std::size_t bytes,
                     const Regions& target, std::size_t to);

  struct Written {
    std::uint32_t place = 0;
    std::uint32_t group = 0;
  };
  // What is where it belongs now; adds to `done`.
  Result<void> take(std::vector<Written>* done);
  std::uint32_t outstanding() const { return loop_.outstanding(); }

 private:
  EagerWriter(const PortRegions& landing, io::verbs::Loop loop) : landing_(landing), loop_(std::move(loop)) {}

  const PortRegions& landing_;
  io::verbs::Loop loop_;
  std::array<std::uint32_t, kEagerSlots> groups_{};
};

}  // namespace clustar::transport::verbs
