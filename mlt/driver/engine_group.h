// The engines of one NIC, and to which of them a connection belongs, for its whole life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mlt/driver/engine.h"
#include "transport/api/transport.h"

namespace clustar::mlt::driver {

// How many engines a NIC has at most. `wanted`: CLUSTAR_ENGINES, 0 = auto, which takes one for every two processors of
// the process where it has eight or more, so that the threads that poll have one each.
std::size_t most_engines(std::size_t wanted, std::size_t nics, std::size_t processors);
// That this process may run on: its affinity.
std::size_t usable_processors();

// An engine is opened when it is first needed. The connections of one communicator share an engine: in most processes
// one thread of NCCL moves them, and what the communicator may lose by this NIC is counted there, over all its
// connections. Credit for senders, and the budget of questions, are an engine's: a NIC gives as many times of both as
// it has engines in use. Before NCCL 2.28 plugins cannot tell communicators apart, and all are one. With
// EngineMode::kThread connections that lose nothing are spread one by one, since each engine has a thread there. Calls
// are made with the transport's lock held. Outlives the engines that it gave.
class EngineGroup {
 public:
  using Open = std::function<Result<std::unique_ptr<Engine>>(transport::TrafficBook&)>;

  EngineGroup(std::size_t most, EngineMode mode) : most_(most), mode_(mode) {}

  // For a listener or a connect; the connection keeps it. Error: `open`'s, where no engine is open yet.
  Result<std::shared_ptr<Engine>> engine_for(const transport::ChannelOptions& channel, const Open& open);

  std::span<const std::unique_ptr<Engine>> engines() const { return engines_; }
  const transport::TrafficBook& traffic() const { return *traffic_; }
  // Of all its engines.
  EngineCounters counters() const;

 private:
  struct User {  // a communicator, or a connection by itself
    std::optional<std::uint64_t> communicator;
    std::size_t engine = 0;
    std::weak_ptr<Engine> held;  // while any of its connections lives
  };

  std::size_t least_used() const;

  std::size_t most_;
  const EngineMode mode_;
  std::unique_ptr<transport::TrafficBook> traffic_ = std::make_unique<transport::TrafficBook>();  // of the whole NIC
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<User> users_;
};

}  // namespace clustar::mlt::driver
