#include "bench/perf/driver.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "bench/perf/driver_parts.h"

namespace clustar::bench::perf {
namespace {

// Slots of one sender's messages: enough to be cold, and one for each posted request.
std::size_t slots(std::size_t bytes, int senders) {
  const std::size_t share = kColdBytes / static_cast<std::size_t>(senders);
  return std::max((share + bytes - 1) / bytes, senders == 1 ? kPosted : std::size_t{2});
}

// A sender only reads, so messages larger than the buffer's share may be sent from the same place twice.
std::size_t send_slots(std::size_t bytes) { return std::max<std::size_t>((kColdBytes + bytes - 1) / bytes, 1); }

// The last message of a sample has its own place, with content of its own.
std::size_t send_offset(const Task& task, std::uint64_t message, std::uint64_t last) {
  const std::size_t n = send_slots(task.bytes);
  return kMessagesAt + (message == last ? n : static_cast<std::size_t>(message % n)) * task.bytes;
}

std::size_t receive_offset(const Task& task, std::uint64_t message, int sender = 0) {
  const std::size_t n = slots(task.bytes, task.peers);
  return kMessagesAt + (static_cast<std::size_t>(sender) * n + static_cast<std::size_t>(message % n)) * task.bytes;
}

std::uint64_t content_seed(const Task& task, int rank) { return task.seed * 64 + static_cast<std::uint64_t>(rank); }

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Sizes buffer_sizes(Loop loop, std::size_t bytes, int peers, int rank) {
  const std::size_t messages_out = kMessagesAt + (send_slots(bytes) + 1) * bytes;
  const std::size_t messages_in = kMessagesAt + slots(bytes, peers) * static_cast<std::size_t>(peers) * bytes;
  if (loop == Loop::kPingPong) return {messages_out, messages_in};
  if (loop == Loop::kMixed) {
    const std::size_t elephants = kElephantBytes * kPosted * static_cast<std::size_t>(std::max(peers - 1, 0));
    return rank == 0 ? Sizes{kMessagesAt, kMessagesAt + bytes + elephants}
                     : Sizes{kMessagesAt + bytes + kElephantBytes, kMessagesAt};
  }
  return rank == 0 ? Sizes{kMessagesAt, messages_in} : Sizes{messages_out, kMessagesAt};
}

Result<Sample> Driver::run(const Task& task) {
  Sample sample;
  Idle idle(task.spin, stall_, progress_);
  const bool times_messages = task.rank == 0 && task.loop != Loop::kStream;
  if (times_messages && task.loop != Loop::kMixed)
    sample.message_us.reserve(static_cast<std::size_t>(task.count) * static_cast<std::size_t>(task.peers));
  if (task.loop != Loop::kMixed && (task.rank != 0 || task.loop == Loop::kPingPong)) {
    fill(send_.part(send_offset(task, 1, 1), task.bytes), content_seed(task, task.rank));
  }
  const double cpu_before = cpu_seconds();
  Result<void> result;
  switch (task.loop) {
    case Loop::kStream:
      result = task.rank == 0 ? stream_receive(task, idle, sample) : stream_send(task, idle, sample);
      break;
    case Loop::kPingPong: result = task.rank == 0 ? ping(task, idle, sample) : pong(task, idle, sample); break;
    case Loop::kIncast: result = task.rank == 0 ? incast_receive(task, idle, sample) : incast_send(task, idle); break;
    case Loop::kMixed: result = task.rank == 0 ? mixed_receive(task, idle, sample) : mixed_send(task, idle); break;
  }
  if (!result) return tl::unexpected(result.error());
  // The stream loops take their own, before the content is checked.
  if (task.loop != Loop::kStream) sample.cpu_s = cpu_seconds() - cpu_before;
  if (auto ok = settle(idle); !ok) return tl::unexpected(ok.error());
  sample.unsized = unsized_;
  sample.lost = wire_.take_loss();
  sample.delivered_bytes -= std::min(sample.delivered_bytes, sample.lost.bytes);
  return sample;
}

Result<void> Driver::settle(Idle& idle) {
  for (;;) {
    const auto settled = wire_.settled();
    if (!settled) return tl::unexpected(settled.error());
    if (*settled) return {};
    if (auto ok = idle.wait(); !ok) return ok;
  }
}

Result<void> Driver::check_size(const Tested& tested, std::size_t expected) {
  if (!tested.size) {
    ++unsized_;
    return {};
  }
  if (*tested.size == expected) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("wrong data: test reported {} bytes for a message of {} bytes", *tested.size, expected));
}

Result<void> Driver::check(std::size_t offset, const Task& task, int sender) const {
  return check(offset, task.bytes, content_seed(task, sender), fmt::format("from rank {}", sender).c_str());
}

Result<void> Driver::check(std::size_t offset, std::size_t bytes, std::uint64_t seed, const char* what) const {
  if (!wire_.places()) return {};
  const auto wrong = first_difference(receive_.part(offset, bytes), seed);
  if (!wrong) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("wrong data: byte {} of the last message of {} bytes, {}", *wrong, bytes, what));
}

Result<Tested> Driver::finish(void* request, Idle& idle) {
  for (;;) {
    auto tested = wire_.test(request);
    if (!tested) return tested;
    if (tested->done) {
      idle.moved();
      return tested;
    }
    if (auto ok = idle.wait(); !ok) return tl::unexpected(ok.error());
  }
}

Result<void> Driver::send_one(int channel, std::size_t offset, std::size_t bytes, Idle& idle) {
  for (;;) {
    auto request = wire_.post_send(channel, offset, bytes);
    if (!request) return tl::unexpected(request.error());
    if (*request != nullptr) {
      const auto sent = finish(*request, idle);
      return sent ? Result<void>() : tl::unexpected(sent.error());
    }
    if (auto ok = idle.wait(); !ok) return ok;
  }
}

Result<void> Driver::receive_one(int channel, std::size_t offset, std::size_t bytes, Idle& idle) {
  for (;;) {
    auto request = wire_.post_receive(channel, offset, bytes);
    if (!request) return tl::unexpected(request.error());
    if (*request != nullptr) {
      const auto tested = finish(*request, idle);
      return tested ? check_size(*tested, bytes) : tl::unexpected(tested.error());
    }
    if (auto ok = idle.wait(); !ok) return ok;
  }
}

Result<void> Driver::stream_send(const Task& task, Idle& idle, Sample& sample) {
  if (auto go = receive_one(0, 0, kGoBytes, idle); !go) return go;
  const double cpu_before = cpu_seconds();
  Ring ring(*this, Kind::kSend, task.count, task.bytes);
  const std::uint64_t last = task.count - 1;
  auto ok = ring.run([&](std::uint64_t i) { return wire_.post_send(0, send_offset(task, i, last), task.bytes); }, idle);
  sample.cpu_s = cpu_seconds() - cpu_before;
  return ok;
}

Result<void> Driver::stream_receive(const Task& task, Idle& idle, Sample& sample) {
  Ring ring(*this, Kind::kReceive, task.count, task.bytes);
  const auto post = [&](std::uint64_t i) { return wire_.post_receive(0, receive_offset(task, i), task.bytes); };
  if (auto ok = ring.post(post); !ok) return tl::unexpected(ok.error());
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  if (auto go = send_one(0, 0, kGoBytes, idle); !go) return go;
  if (auto ok = ring.run(post, idle); !ok) return ok;
  sample.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  sample.cpu_s = cpu_seconds() - cpu_before;
  sample.delivered_bytes = task.count * task.bytes;
  return check(receive_offset(task, task.count - 1), task, 1);
}

// The first round trip only makes sure that the other side is there.
Result<void> Driver::ping(const Task& task, Idle& idle, Sample& sample) {
  for (std::uint64_t i = 0; i <= task.count; ++i) {
    const auto begin = Clock::now();
    Ring receive(*this, Kind::kReceive, 1, task.bytes);
    Ring send(*this, Kind::kSend, 1, task.bytes);
    const auto post_receive = [&](std::uint64_t) { return wire_.post_receive(0, receive_offset(task, i), task.bytes); };
    const auto post_send = [&](std::uint64_t) {
      return wire_.post_send(0, send_offset(task, i, task.count), task.bytes);
    };
    while (!receive.done() || !send.done()) {
      bool any = false;
      for (const auto& moved :
           {receive.post(post_receive), send.post(post_send), receive.test_oldest(), send.test_oldest()}) {
        if (!moved) return tl::unexpected(moved.error());
        any = any || *moved;
      }
      if (any) {
        idle.moved();
      } else if (auto ok = idle.wait(); !ok) {
        return ok;
      }
    }
    if (i == 0) continue;
    const auto took = Clock::now() - begin;
    sample.message_us.push_back(microseconds(took));
    sample.seconds += std::chrono::duration<double>(took).count();
  }
  sample.delivered_bytes = task.count * task.bytes;
  return check(receive_offset(task, task.count), task, 1);
}

Result<void> Driver::pong(const Task& task, Idle& idle, Sample& sample) {
  for (std::uint64_t i = 0; i <= task.count; ++i) {
    if (auto ok = receive_one(0, receive_offset(task, i), task.bytes, idle); !ok) return ok;
    if (auto ok = send_one(0, send_offset(task, i, task.count), task.bytes, idle); !ok) return ok;
  }
  sample.delivered_bytes = task.count * task.bytes;
  return check(receive_offset(task, task.count), task, 0);
}

Result<void> Driver::incast_send(const Task& task, Idle& idle) {
  for (std::uint64_t i = 0; i <= task.count; ++i) {
    if (auto go = receive_one(0, 0, kGoBytes, idle); !go) return go;
    if (auto ok = send_one(0, send_offset(task, i, task.count), task.bytes, idle); !ok) return ok;
  }
  return {};
}

// One round of an incast at the receiver: per sender a message that is awaited and the "go" that asks for it.
struct Driver::Round {
  struct Peer {
    void* receive = nullptr;
    void* go = nullptr;
    bool received = false;
    bool went = false;
  };
  std::vector<Peer> peers;
  Clock::time_point begin;
  bool timed = false;

  bool done() const {
    return std::all_of(peers.begin(), peers.end(), [](const Peer& peer) { return peer.received && peer.went; });
  }
};

Result<bool> Driver::step_round(const Task& task, std::uint64_t round, Round& state, Sample& sample) {
  bool moved = false;
  for (std::size_t p = 0; p < state.peers.size(); ++p) {
    Round::Peer& peer = state.peers[p];
    const int channel = static_cast<int>(p);
    if (peer.receive == nullptr) {
      auto request = wire_.post_receive(channel, receive_offset(task, round, channel), task.bytes);
      if (!request) return tl::unexpected(request.error());
      peer.receive = *request;
      moved = moved || peer.receive != nullptr;
    }
    if (peer.receive != nullptr && peer.go == nullptr) {
      auto request = wire_.post_send(channel, 0, kGoBytes);
      if (!request) return tl::unexpected(request.error());
      peer.go = *request;
      moved = moved || peer.go != nullptr;
    }
    if (peer.go != nullptr && !peer.went) {
      const auto tested = wire_.test(peer.go);
      if (!tested) return tl::unexpected(tested.error());
      peer.went = tested->done;
      moved = moved || peer.went;
    }
    if (peer.receive != nullptr && !peer.received) {
      const auto tested = wire_.test(peer.receive);
      if (!tested) return tl::unexpected(tested.error());
      if (!tested->done) continue;
      if (auto ok = check_size(*tested, task.bytes); !ok) return tl::unexpected(ok.error());
      peer.received = moved = true;
      if (state.timed) sample.message_us.push_back(microseconds(Clock::now() - state.begin));
    }
  }
  return moved;
}

Result<void> Driver::incast_receive(const Task& task, Idle& idle, Sample& sample) {
  Round state;
  for (std::uint64_t round = 0; round <= task.count; ++round) {
    state.peers.assign(static_cast<std::size_t>(task.peers), {});
    state.timed = round > 0;  // in the first the senders may not be there yet
    state.begin = Clock::now();
    while (!state.done()) {
      auto moved = step_round(task, round, state, sample);
      if (!moved) return tl::unexpected(moved.error());
      if (*moved) {
        idle.moved();
      } else if (auto ok = idle.wait(); !ok) {
        return ok;
      }
    }
    if (state.timed) sample.seconds += std::chrono::duration<double>(Clock::now() - state.begin).count();
  }
  sample.delivered_bytes = task.count * task.bytes * static_cast<std::uint64_t>(task.peers);
  for (int sender = 0; sender < task.peers; ++sender) {
    if (auto ok = check(receive_offset(task, task.count, sender), task, sender + 1); !ok) return ok;
  }
  return {};
}

}  // namespace clustar::bench::perf
