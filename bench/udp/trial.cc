#include "bench/udp/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "bench/udp/receivers.h"
#include "bench/udp/senders.h"
#include "transport/io/udp/path_socket.h"

namespace clustar::bench::udp {
namespace {

using transport::io::udp::IpAddress;
using transport::io::udp::open_path;
using transport::io::udp::PathSocket;
using transport::io::udp::SocketAddress;
using Clock = std::chrono::steady_clock;

constexpr int kCreditWaitMs = 100;
constexpr auto kQuiet = std::chrono::milliseconds(500);  // nothing came for so long: the rest is lost

double thread_cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// All but idle, of all cores.
double machine_cpu_s() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  std::array<double, 8> ticks{};
  file >> cpu;
  for (double& one : ticks) file >> one;
  const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
  return busy / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // where it is not allowed, the scheduler chooses
}

struct Sockets {
  std::optional<PathSocket> ends[2];
};

Result<Sockets> open_sockets(const Wire& wire) {
  Sockets sockets;
  Result<void> opened;
  for (int host = 0; host < 2 && opened; ++host) {
    wire.run_on(host, [&] {
      auto socket = open_path(IpAddress::parse(Wire::address(host)).value(), 0, {4 << 20, 8 << 20, host == 1});
      if (socket) sockets.ends[host].emplace(std::move(*socket));
      if (!socket) opened = tl::unexpected(socket.error());
    });
  }
  if (!opened) return tl::unexpected(opened.error());
  for (int host = 0; host < 2; ++host) {
    const SocketAddress to(IpAddress::parse(Wire::address(1 - host)).value(), sockets.ends[1 - host]->port);
    if (::connect(sockets.ends[host]->file.fd(), to.raw(), to.length()) != 0) {
      return fail(ErrorCode::kSystem, "connect: " + describe_errno(errno));
    }
  }
  const int fd = sockets.ends[0]->file.fd();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return sockets;
}

// Sends as much as the window lets it.
class SendingEnd {
 public:
  SendingEnd(int fd, const Shape& shape, std::unique_ptr<Sender> sender)
      : fd_(fd), shape_(shape), sender_(std::move(sender)) {}

  bool done() const { return handed_ == shape_.segments; }
  std::uint64_t calls() const { return sender_->calls() + calls_; }
  std::uint64_t copied() const { return sender_->copied(); }
  std::uint64_t stalls() const { return stalls_; }

  Result<void> fill_window() {
    const std::size_t burst = sender_->burst();
    const std::uint64_t window = std::max<std::uint64_t>(shape_.window_segments, burst);
    while (!done() && in_flight() + burst <= window) {
      std::array<Burst, Sender::kMostBursts> batch;
      std::size_t count = 0;
      for (; count < batch.size() && !done() && in_flight() + burst <= window; ++count) {
        batch[count] = nth(next_++, burst);
        handed_ += batch[count].segments;
      }
      if (auto sent = sender_->send(std::span(batch).first(count)); !sent) return sent;
    }
    return {};
  }
  void credit(std::uint64_t segments) { credited_ = std::max(credited_, segments); }
  void credit_all() {
    ++stalls_;
    credited_ = handed_;
  }
  void wait_for_credit() {
    pollfd readable{fd_, POLLIN, 0};
    ++calls_;
    if (::poll(&readable, 1, kCreditWaitMs) <= 0) return credit_all();
    for (std::uint64_t segments = 0;; credit(segments)) {
      ++calls_;
      if (::recv(fd_, &segments, sizeof segments, MSG_DONTWAIT) != sizeof segments) return;
    }
  }

 private:
  std::uint64_t in_flight() const { return handed_ - std::min(handed_, credited_); }
  Burst nth(std::uint64_t position, std::size_t burst) const {
    const std::uint64_t bursts = (shape_.segments + burst - 1) / burst;
    std::uint64_t number = position;
    if (shape_.swap_every >= 2) {
      const std::uint64_t in_group = position % shape_.swap_every;
      if (in_group == 0 && position + 1 < bursts) number = position + 1;
      if (in_group == 1) number = position - 1;
    }
    const std::uint64_t first = number * burst;
    return {first, static_cast<std::size_t>(std::min<std::uint64_t>(burst, shape_.segments - first))};
  }

  int fd_;
  Shape shape_;
  std::unique_ptr<Sender> sender_;
  std::uint64_t next_ = 0;      // position of the next burst
  std::uint64_t handed_ = 0;    // segments given to the sender
  std::uint64_t credited_ = 0;  // of these
  std::uint64_t calls_ = 0;
  std::uint64_t stalls_ = 0;
};

class Trial {
 public:
  Trial(Sockets& sockets, Memory& memory, const Shape& shape, const Arm& arm)
      : fds_{sockets.ends[0]->file.fd(), sockets.ends[1]->file.fd()},
        memory_(&memory),
        shape_(shape),
        arm_(arm),
        assembly_(shape, memory.target) {}

  Result<Figures> run(Threads threads) {
    start_ = latest_ = Clock::now();
    const double machine = machine_cpu_s();
    Result<void> done = threads == Threads::kOne ? on_one_thread() : on_two(threads == Threads::kTwoPinned);
    if (!done) return tl::unexpected(done.error());
    figures_.machine_cpu_s = machine_cpu_s() - machine;
    figures_.seconds = std::chrono::duration<double>(latest_ - start_).count();
    figures_.lost = shape_.segments - assembly_.count();
    if (arm_.receiver != "nowhere") figures_.wrong = assembly_.wrong(memory_->source);
    return figures_;
  }

 private:
  Result<SendingEnd> sending_end() {
    auto sender = make_sender(arm_.sender, fds_[0], shape_, memory_->source);
    if (!sender) return tl::unexpected(sender.error());
    return SendingEnd(fds_[0], shape_, std::move(*sender));
  }
  void tell(const SendingEnd& end) {
    figures_.sender.calls = end.calls();
    figures_.copied = end.copied();
    figures_.stalls = end.stalls();
  }
  void tell(const Receiver& receiver) {
    figures_.receiver.calls = receiver.calls();
    figures_.scatter = receiver.scatter();
  }

  // As a CPU that reduces, or sends on, whole chunks.
  void read_what_came() {
    if (shape_.read_every == 0) return;
    for (; assembly_.end() - read_ >= shape_.read_every; read_ += shape_.read_every) {
      for (std::uint64_t segment = read_; segment < read_ + shape_.read_every; ++segment) {
        const auto* words = reinterpret_cast<const std::uint64_t*>(assembly_.place(segment));
        sum_ = std::accumulate(words, words + shape_.payload_bytes / sizeof *words, sum_);
      }
    }
  }

  Result<void> on_one_thread() {
    Result<void> result;
    std::thread([&] { result = alternate(); }).join();  // a thread of its own, as io_uring's rings go with theirs
    return result;
  }
  Result<void> alternate() {
    auto end = sending_end();
    if (!end) return tl::unexpected(end.error());
    auto receiver = make_receiver(arm_.receiver, fds_[1], shape_);
    if (!receiver) return tl::unexpected(receiver.error());
    double before = thread_cpu_s();
    const auto spent = [&before] {
      const double now = thread_cpu_s();
      return now - std::exchange(before, now);
    };
    while (!end->done() || assembly_.count() < shape_.segments) {
      if (auto sent = end->fill_window(); !sent) return sent;
      figures_.sender.cpu_s += spent();
      const std::uint64_t known = assembly_.count();
      if (auto done = (*receiver)->poll(assembly_); !done) return done;
      read_what_came();
      figures_.receiver.cpu_s += spent();
      end->credit(assembly_.end());
      if (assembly_.count() > known) latest_ = Clock::now();
      if (assembly_.count() > known) continue;
      if (end->done()) break;  // the rest is lost
      end->credit_all();
    }
    tell(*end);
    tell(**receiver);
    return {};
  }

  Result<void> on_two(bool pinned) {
    Result<void> received;
    Result<void> sent;
    std::thread receiver([&] {
      if (pinned) pin(1);
      received = receive();
      receiver_done_ = true;
    });
    std::thread sender([&] {
      if (pinned) pin(0);
      sent = send();
      sender_done_ = true;
    });
    sender.join();
    receiver.join();
    return sent ? received : sent;
  }
  Result<void> send() {
    auto end = sending_end();
    if (!end) return tl::unexpected(end.error());
    const double cpu = thread_cpu_s();
    while (!receiver_done_) {
      if (auto sent = end->fill_window(); !sent) return sent;
      if (end->done()) break;
      end->wait_for_credit();
    }
    figures_.sender.cpu_s = thread_cpu_s() - cpu;
    tell(*end);
    return {};
  }
  Result<void> receive() {
    auto receiver = make_receiver(arm_.receiver, fds_[1], shape_);
    if (!receiver) return tl::unexpected(receiver.error());
    const double cpu = thread_cpu_s();
    std::uint64_t credited = 0;
    std::uint64_t credits = 0;
    assembly_.on_message([&] {
      if (assembly_.end() - credited < shape_.window_segments / 4) return;
      credited = assembly_.end();
      ++credits;
      static_cast<void>(::send(fds_[1], &credited, sizeof credited, MSG_DONTWAIT));  // the next makes a lost one good
    });
    while (assembly_.count() < shape_.segments) {
      const std::uint64_t known = assembly_.count();
      if (auto done = (*receiver)->poll(assembly_); !done) return done;
      read_what_came();
      const auto now = Clock::now();
      if (assembly_.count() > known) latest_ = now;
      if (sender_done_ && now - latest_ > kQuiet) break;
    }
    figures_.receiver.cpu_s = thread_cpu_s() - cpu;
    tell(**receiver);
    figures_.receiver.calls += credits;
    return {};
  }

  int fds_[2];
  Memory* memory_;
  Shape shape_;
  Arm arm_;
  Assembly assembly_;
  Figures figures_;         // `sender` and `receiver` belong to their threads until both have ended
  std::uint64_t read_ = 0;  // segments read by the receiver
  std::uint64_t sum_ = 0;
  Clock::time_point start_;
  Clock::time_point latest_;
  std::atomic<bool> sender_done_ = false;
  std::atomic<bool> receiver_done_ = false;
};

}  // namespace

Memory::Memory() : source(2 * kColdBytes), target(kColdBytes) {
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < source.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t value = random();
    std::memcpy(source.data() + at, &value, sizeof value);
  }
}

Result<Figures> run_trial(const Wire& wire, Memory& memory, const Shape& shape, const Arm& arm, Threads threads) {
  auto sockets = open_sockets(wire);
  if (!sockets) return tl::unexpected(sockets.error());
  std::ranges::fill(memory.target, std::byte{0});
  return Trial(*sockets, memory, shape, arm).run(threads);
}

}  // namespace clustar::bench::udp
