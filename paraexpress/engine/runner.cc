#include "paraexpress/engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

// Nothing moves: a neighbour computes, perhaps on this core.
void rest(steady_clock::time_point since) {
  const auto idle = steady_clock::now() - since;
  if (idle < std::chrono::microseconds(500)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

Runner::Runner(Mesh& mesh, Farewells& farewells, const EngineOptions& options, const std::atomic<bool>& abort)
    : mesh_(mesh), farewells_(farewells), options_(options), abort_(abort), places_(options.ranks) {}

// A link's messages are told from those of the other direction, of a neighbouring operation and of one that another
// rank takes for something else; the order does the rest.
int Runner::tag(bool up) const {
  constexpr int kNumbers = 8192;
  return 1 + (kind_ * kNumbers + static_cast<int>(number_ % kNumbers)) * 2 + (up ? 1 : 0);
}

Result<void> Runner::make_places(Member peer, std::uint64_t bytes) {
  Places& places = places_[peer];
  if (places.each >= bytes) return {};
  places.mr.reset();
  places.memory.reset(new std::byte[bytes * kWindow]);
  auto mr = mesh_.from(peer).reg_mr(gdr::MemoryRef::host(places.memory.get(), bytes * kWindow));
  if (!mr) return tl::unexpected(mr.error());
  places.mr = std::move(*mr);
  places.each = bytes;
  return {};
}

std::optional<Blame> Runner::run(const Work& work) {
  element_ = element_bytes(work.type);
  ++number_;
  kind_ = (static_cast<int>(work.type) * static_cast<int>(kReductions) + static_cast<int>(work.reduction)) * 2 +
          (work.collective == Collective::kAllGather ? 1 : 0);
  if (auto found = farewells_.look()) return found;
  Program program(*work.seat, work.collective, work.ranges, work.chunk, kWindow);
  links_.assign(program.links(), {});
  for (std::size_t link = 0; link < program.links(); ++link) {
    const Program::Link& facts = program.link(link);
    if (facts.sends || !facts.up) continue;
    const std::uint64_t longest = std::min(work.chunk, facts.elements) * element_;
    if (const auto ok = make_places(facts.peer, longest); !ok) return blame(options_.rank, ok.error());
  }
  auto moved_at = steady_clock::now();
  for (std::uint64_t looks = 0; !program.done(); ++looks) {
    bool moved = false;
    for (std::size_t link = 0; link < program.links(); ++link) {
      if (auto failed = take(program, link, moved)) return failed;
      if (auto failed = post(work, program, link, moved)) return failed;
    }
    if (auto failed = add_up(work, program, moved)) return failed;
    if (moved) {
      moved_at = steady_clock::now();
      continue;
    }
    constexpr std::uint64_t kLook = 16;
    if (looks % kLook == 0) {
      if (auto found = farewells_.look()) return found;
      if (abort_.load(std::memory_order_relaxed)) return blame(options_.rank, {ErrorCode::kInvalidUsage, "it gave up"});
      if (steady_clock::now() - moved_at > options_.stall) return stalled(program);
    }
    rest(moved_at);
  }
  return std::nullopt;
}

std::optional<Blame> Runner::take(Program& program, std::size_t link, bool& moved) {
  Link& mine = links_[link];
  const Program::Link& facts = program.link(link);
  while (!mine.requests.empty()) {
    const auto progress = mine.requests.front()->test();
    if (!progress) return channel_failed(facts.peer, progress.error());
    if (!progress->done) return std::nullopt;
    if (progress->sizes[0] != mine.bytes.front()) {
      return blame(facts.peer, {ErrorCode::kInvalidUsage,
                                fmt::format("a message of {} bytes came where {} were expected; all ranks must start "
                                            "the same operations in the same order",
                                            progress->sizes[0], mine.bytes.front())});
    }
    (facts.sends ? bytes_sent_ : bytes_received_) += mine.bytes.front();
    ++(facts.sends ? messages_sent_ : messages_received_);
    mine.requests.pop_front();
    mine.bytes.pop_front();
    program.ended(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::post(const Work& work, Program& program, std::size_t link, bool& moved) {
  Link& mine = links_[link];
  const Program::Link& facts = program.link(link);
  const Member peer = facts.peer;
  while (mine.requests.size() < kPosted) {
    const auto message = program.next(link);
    if (!message) return std::nullopt;
    const std::uint64_t bytes = message->range.size() * element_;
    const std::size_t at = static_cast<std::size_t>(work.data - work.memory->begin) + message->range.begin * element_;
    Result<transport::Request*> request = nullptr;
    if (facts.sends) {
      transport::FlowTag flow;
      flow.coflow = number_;
      flow.bytes = facts.elements * element_;
      request = mesh_.to(peer).send(*work.memory->to_send[peer], at, bytes, tag(facts.up), flow);
    } else {
      const bool place = facts.up;
      const transport::RecvPart part{place ? places_[peer].mr.get() : work.memory->to_receive[peer].get(),
                                     place ? static_cast<std::size_t>(message->place * places_[peer].each) : at, bytes,
                                     tag(facts.up)};
      request = mesh_.from(peer).recv({&part, 1});
    }
    if (!request) return channel_failed(peer, request.error());
    if (*request == nullptr) return std::nullopt;
    mine.requests.push_back(*request);
    mine.bytes.push_back(bytes);
    program.posted(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::add_up(const Work& work, Program& program, bool& moved) {
  while (const auto sum = program.next_sum()) {
    std::byte* const own = work.data + sum->range.begin * element_;
    inputs_.clear();
    for (const Program::Sum::Input& input : sum->inputs) {
      if (input.link == Program::Sum::kOwn) {
        inputs_.push_back(own);
        continue;
      }
      const Places& places = places_[program.link(input.link).peer];
      inputs_.push_back(places.memory.get() + input.place * places.each);
    }
    reduce_into(own, inputs_, sum->range.size(), work.type, work.reduction);
    program.summed();
    moved = true;
  }
  return std::nullopt;
}

Blame Runner::channel_failed(Member peer, const Error& error) {
  // Who gave up because of a third rank has said so before it closed.
  constexpr auto kPatience = std::chrono::milliseconds(200);
  const auto until = steady_clock::now() + kPatience;
  do {
    if (auto found = farewells_.look()) return *found;
    std::this_thread::yield();
  } while (steady_clock::now() < until && farewells_.silent(peer));
  return blame(peer, error);
}

// Who holds it up is not seen from here: in most plans it is no neighbour.
Blame Runner::stalled(const Program& program) const {
  std::string text = fmt::format("nothing moved for {:.3g} s", std::chrono::duration<double>(options_.stall).count());
  for (std::size_t link = 0; link < program.links(); ++link) {
    if (links_[link].requests.empty()) continue;
    const Program::Link& facts = program.link(link);
    text += fmt::format("; rank {} waits for rank {} to {} {} bytes", options_.rank, facts.peer,
                        facts.sends ? "take" : "send", links_[link].bytes.front());
    break;
  }
  return {kNobody, {ErrorCode::kRemote, text + "; all ranks must start the same operations in the same order"}};
}

EngineTraffic Runner::traffic() const {
  return {bytes_sent_.load(), bytes_received_.load(), messages_sent_.load(), messages_received_.load()};
}

}  // namespace clustar::paraexpress
