#include "bench/fabric/delay/pump.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace clustar::bench::fabric {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kHousekeeping = 200 * kMillisecond;
constexpr std::int64_t kRetry = kMillisecond / 20;  // when the other half took nothing

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

SharedCounters SharedCounters::map(int fd, std::size_t directions, int protection) {
  SharedCounters shared;
  shared.size_ = std::max<std::size_t>(1, directions) * sizeof(DirectionCounters);
  struct stat found {};
  if (fd >= 0 && fstat(fd, &found) == 0 && found.st_size == static_cast<off_t>(shared.size_)) {
    void* const memory = mmap(nullptr, shared.size_, protection, MAP_SHARED, fd, 0);
    // Zero bytes are counters at zero; std::atomic of 64 bits is lock-free and so the same in every process.
    if (memory != MAP_FAILED) shared.counters_ = static_cast<DirectionCounters*>(memory);
  }
  if (fd >= 0) close(fd);
  return shared;
}

SharedCounters SharedCounters::make(const std::string& path, std::size_t directions) {
  unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  const std::size_t size = std::max<std::size_t>(1, directions) * sizeof(DirectionCounters);
  // With its memory: a hole that a full file system cannot fill would end its reader by SIGBUS.
  const int full = fd < 0 ? 0 : posix_fallocate(fd, 0, static_cast<off_t>(size));
  if (full != 0) {
    close(fd);
    unlink(path.c_str());
    errno = full;
    return {};
  }
  return map(fd, directions, PROT_READ | PROT_WRITE);
}

SharedCounters SharedCounters::open(const std::string& path, std::size_t directions) {
  return map(::open(path.c_str(), O_RDONLY | O_CLOEXEC), directions, PROT_READ);
}

SharedCounters::~SharedCounters() {
  if (counters_ != nullptr) munmap(counters_, size_);
}

Result<void> Pump::open(const std::vector<WireCable>& cables, const std::string& counters_path) {
  counters_ = SharedCounters::make(counters_path, 2 * cables.size());
  if (counters_.at(0) == nullptr) {
    return fail(ErrorCode::kSystem,
                fmt::format("cannot write {} (is /run full?): {}", counters_path, std::strerror(errno)));
  }
  for (const WireCable& cable : cables) {
    for (const std::string& half : {cable.near_half(), cable.far_half()}) {
      ports_.emplace_back();
      interfaces_.push_back(half);
      if (const auto done = ports_.back().open(half, cable.mtu); !done) return done;
      const std::size_t own = ports_.size() - 1;
      const std::size_t other = own % 2 == 0 ? own + 1 : own - 1;
      directions_.push_back({own, other, DelayLine(cable.delay_ns, delay_capacity(cable.rate_bps, cable.delay_ns)),
                             counters_.at(own), 0});
    }
  }
  return {};
}

void Pump::take(Direction& direction) {
  // Bounded, so that a flood on one cable does not hold up what is due on the others.
  for (int batch = 0; batch < 4; ++batch) {
    const auto arrivals = ports_[direction.from].receive();
    const std::int64_t now = now_ns();
    for (const PacketPort::Arrival& one : arrivals) {
      if (one.super_packet) {
        direction.counters->super_packets.fetch_add(1, std::memory_order_relaxed);
      } else {
        direction.line.push(one.packet, now - one.age_ns);
      }
    }
    if (arrivals.size() < kPacketBatch) return;
  }
}

bool Pump::deliver(Direction& direction, std::int64_t now) {
  std::array<std::span<const std::byte>, kPacketBatch> packets;
  while (const std::size_t n = direction.line.due(now, packets)) {
    const int sent = ports_[direction.to].send(std::span(packets).first(n));
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    // A packet that cannot go for another reason (the far end is down) is lost, as on a cable that is unplugged.
    if (sent <= 0) ++direction.more_drops;
    if (sent > 0) direction.counters->packets.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
    direction.line.pop(static_cast<std::size_t>(std::max(sent, 1)));
  }
  return true;
}

void Pump::publish() {
  for (Direction& direction : directions_) {
    direction.more_drops += ports_[direction.from].take_lost();
    direction.counters->drops.store(direction.line.dropped() + direction.more_drops, std::memory_order_relaxed);
    direction.counters->waiting.store(direction.line.waiting_packets(), std::memory_order_relaxed);
  }
}

bool Pump::somebody_left(const std::string& namespace_path) const {
  struct stat named {};
  struct stat own {};
  if (stat(namespace_path.c_str(), &named) != 0 || stat("/proc/thread-self/ns/net", &own) != 0) return false;
  if (named.st_ino != own.st_ino || named.st_dev != own.st_dev) return false;
  return std::any_of(interfaces_.begin(), interfaces_.end(),
                     [](const std::string& name) { return if_nametoindex(name.c_str()) != 0; });
}

void Pump::run(const std::string& namespace_path) {
  std::vector<pollfd> polled;
  for (const PacketPort& port : ports_) polled.push_back({port.fd(), POLLIN, 0});
  std::int64_t look_again = 0;
  while (true) {
    std::int64_t now = now_ns();
    if (now >= look_again) {
      publish();
      if (!somebody_left(namespace_path)) return;
      look_again = now + kHousekeeping;
    }
    std::int64_t wake = look_again;
    for (Direction& direction : directions_) {
      if (!deliver(direction, now)) {
        wake = std::min(wake, now + kRetry);
      } else if (const auto due = direction.line.next_due()) {
        wake = std::min(wake, *due);
      }
    }
    now = now_ns();
    const std::int64_t left = std::max<std::int64_t>(0, wake - now);
    const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
    if (ppoll(polled.data(), polled.size(), &timeout, nullptr) <= 0) continue;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if ((polled[i].revents & POLLIN) != 0) take(directions_[i]);
      // A half that is gone stays readable forever; its error is taken once, then it is not asked again.
      if ((polled[i].revents & (POLLHUP | POLLNVAL)) != 0) polled[i].fd = -1;
      if ((polled[i].revents & POLLERR) != 0) {
        int error = 0;
        socklen_t length = sizeof(error);
        getsockopt(polled[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
  }
}

}  // namespace clustar::bench::fabric
