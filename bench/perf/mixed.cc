// A mixed load: messages of the size in question, one at a time, beside elephants that keep the line busy, all of one
// process: what a small message waits for in front of the line. Channel 0 carries the messages, each other one an
// elephant. The messages go on, one each `gap`, for as long as the elephants do; without elephants there are `count`
// of them.
#include <algorithm>
#include <vector>

#include "bench/perf/driver.h"
#include "bench/perf/driver_parts.h"

namespace clustar::bench::perf {
namespace {

constexpr std::byte kMore{1}, kOver{2};  // first byte of a "go"

constexpr std::size_t mouse_at() { return kMessagesAt; }
std::size_t elephants_at(const Task& task) { return kMessagesAt + task.bytes; }
std::size_t elephant_slot(const Task& task, int elephant, std::uint64_t message) {
  const auto index = static_cast<std::size_t>(elephant) * kPosted + static_cast<std::size_t>(message % kPosted);
  return elephants_at(task) + index * kElephantBytes;
}
std::uint64_t mouse_seed(const Task& task) { return task.seed * 64; }
std::uint64_t elephant_seed(const Task& task) { return task.seed * 64 + 1; }

}  // namespace

Result<void> Driver::mixed_send(const Task& task, Idle& idle) {
  fill(send_.part(mouse_at(), task.bytes), mouse_seed(task));
  fill(send_.part(elephants_at(task), kElephantBytes), elephant_seed(task));
  std::vector<Ring> elephants;
  for (int i = 1; i < task.peers; ++i) elephants.emplace_back(*this, Kind::kSend, task.count, kElephantBytes);
  bool over = false;
  void* go = nullptr;
  void* mouse = nullptr;
  bool asked = false;  // for a message that is not posted yet
  while (!over || mouse != nullptr ||
         !std::all_of(elephants.begin(), elephants.end(), [](const Ring& ring) { return ring.done(); })) {
    bool moved = false;
    const auto posts = [&](void*& request, bool receives) -> Result<void> {
      auto posted = receives ? wire_.post_receive(0, 0, kGoBytes) : wire_.post_send(0, mouse_at(), task.bytes);
      if (!posted) return tl::unexpected(posted.error());
      request = *posted;
      moved = moved || request != nullptr;
      return {};
    };
    const auto finishes = [&](void*& request) -> Result<bool> {
      const auto tested = wire_.test(request);
      if (!tested) return tl::unexpected(tested.error());
      if (tested->done) request = nullptr;
      moved = moved || tested->done;
      return tested->done;
    };
    if (go == nullptr && !over && !asked && mouse == nullptr) {
      if (auto ok = posts(go, true); !ok) return ok;
    }
    if (go != nullptr) {
      const auto done = finishes(go);
      if (!done) return tl::unexpected(done.error());
      if (*done) (receive_.part(0, 1)[0] == kOver ? over : asked) = true;
    }
    if (asked) {
      if (auto ok = posts(mouse, false); !ok) return ok;
      asked = mouse == nullptr;
    }
    if (mouse != nullptr) {
      if (const auto done = finishes(mouse); !done) return tl::unexpected(done.error());
    }
    for (std::size_t i = 0; i < elephants.size(); ++i) {
      const auto posted = elephants[i].post(
          [&](std::uint64_t) { return wire_.post_send(static_cast<int>(i) + 1, elephants_at(task), kElephantBytes); });
      if (!posted) return tl::unexpected(posted.error());
      const auto tested = elephants[i].test_oldest();
      if (!tested) return tl::unexpected(tested.error());
      moved = moved || *posted || *tested;
    }
    if (moved) {
      idle.moved();
    } else if (auto ok = idle.wait(); !ok) {
      return ok;
    }
  }
  return {};
}

Result<void> Driver::mixed_receive(const Task& task, Idle& idle, Sample& sample) {
  std::vector<Ring> elephants;
  for (int i = 1; i < task.peers; ++i) elephants.emplace_back(*this, Kind::kReceive, task.count, kElephantBytes);
  const auto step_elephants = [&]() -> Result<bool> {
    bool moved = false;
    for (std::size_t i = 0; i < elephants.size(); ++i) {
      const auto posted = elephants[i].post([&](std::uint64_t message) {
        return wire_.post_receive(static_cast<int>(i) + 1, elephant_slot(task, static_cast<int>(i), message),
                                  kElephantBytes);
      });
      if (!posted) return posted;
      const auto tested = elephants[i].test_oldest();
      if (!tested) return tested;
      moved = moved || *posted || *tested;
    }
    return moved;
  };
  const auto until = [&](auto&& done) -> Result<void> {
    for (;;) {
      const auto over = done();
      if (!over) return tl::unexpected(over.error());
      const auto moved = step_elephants();
      if (!moved) return tl::unexpected(moved.error());
      if (*over || *moved) idle.moved();
      if (*over) return {};
      if (*moved) continue;
      if (auto ok = idle.wait(); !ok) return ok;
    }
  };
  const auto one = [&](auto&& post) -> Result<void> {
    void* request = nullptr;
    return until([&]() -> Result<bool> {
      if (request == nullptr) {
        auto posted = post();
        if (!posted) return tl::unexpected(posted.error());
        request = *posted;
        return false;
      }
      const auto tested = wire_.test(request);
      if (!tested) return tl::unexpected(tested.error());
      return tested->done;
    });
  };
  const auto all_done = [&](std::uint64_t rounds) {
    if (elephants.empty()) return rounds >= task.count;
    return std::all_of(elephants.begin(), elephants.end(), [](const Ring& ring) { return ring.done(); });
  };

  auto begin = Clock::now();
  std::uint64_t before = 0;  // messages of elephants
  send_.part(0, 1)[0] = kMore;
  // The first round only makes sure that the other side is there.
  for (std::uint64_t round = 0; round == 0 || !all_done(round - 1); ++round) {
    void* receive = nullptr;
    const auto post = until([&]() -> Result<bool> {
      auto posted = wire_.post_receive(0, mouse_at(), task.bytes);
      if (!posted) return tl::unexpected(posted.error());
      receive = *posted;
      return receive != nullptr;
    });
    if (!post) return post;
    const auto asked_at = Clock::now();
    if (auto ok = one([&] { return wire_.post_send(0, 0, kGoBytes); }); !ok) return ok;
    const auto came = until([&]() -> Result<bool> {
      const auto tested = wire_.test(receive);
      if (!tested) return tl::unexpected(tested.error());
      if (!tested->done) return false;
      if (auto ok = check_size(*tested, task.bytes); !ok) return tl::unexpected(ok.error());
      return true;
    });
    if (!came) return came;
    if (round == 0) {
      begin = Clock::now();
      for (const Ring& ring : elephants) before += ring.completed();
      continue;
    }
    sample.message_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - asked_at).count());
    const auto paused = until([&]() -> Result<bool> { return Clock::now() >= asked_at + task.gap || all_done(round); });
    if (!paused) return paused;
  }
  sample.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  sample.delivered_bytes =
      elephants.empty() ? task.count * task.bytes : (task.count * elephants.size() - before) * kElephantBytes;
  send_.part(0, 1)[0] = kOver;
  if (auto ok = one([&] { return wire_.post_send(0, 0, kGoBytes); }); !ok) return ok;
  if (auto ok = check(mouse_at(), task.bytes, mouse_seed(task), "of the mice"); !ok) return ok;
  for (int i = 0; i + 1 < task.peers; ++i) {
    const auto ok =
        check(elephant_slot(task, i, task.count - 1), kElephantBytes, elephant_seed(task), "of an elephant");
    if (!ok) return ok;
  }
  return {};
}

}  // namespace clustar::bench::perf
