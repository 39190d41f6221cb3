#include "transport/sim/simulation.h"

#include <cassert>
#include <utility>

namespace clustar::transport::sim {

void Simulation::at(TimePoint when, std::function<void()> callback) {
  if (free_callbacks_.empty()) {
    free_callbacks_.push_back(static_cast<std::uint32_t>(callbacks_.size()));
    callbacks_.emplace_back();
  }
  const std::uint32_t slot = free_callbacks_.back();
  free_callbacks_.pop_back();
  callbacks_[slot] = std::move(callback);
  events_.push(when, *this, 0, slot);
}

bool Simulation::step() {
  assert(!running_);
  running_ = true;
  const bool happened = events_.step();
  running_ = false;
  return happened;
}

void Simulation::run_until(TimePoint until) {
  assert(!running_);
  running_ = true;
  events_.run_until(until);
  running_ = false;
}

bool Simulation::run(std::uint64_t events) {
  for (std::uint64_t i = 0; i < events; ++i) {
    if (!step()) return true;
  }
  return events_.empty();
}

void Simulation::on_event(std::uint32_t, std::uint32_t argument) {
  // Out of its slot before it runs: it may schedule others.
  const std::function<void()> callback = std::move(callbacks_[argument]);
  callbacks_[argument] = nullptr;
  free_callbacks_.push_back(argument);
  callback();
}

}  // namespace clustar::transport::sim
