#include "paraexpress/engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
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

std::size_t offset_in(const Registered& memory, const std::byte* at) {
  return static_cast<std::size_t>(at - memory.begin);
}

}  // namespace

Runner::Runner(Mesh& mesh, Watch& watch, HelperLines* lines, const RunnerOptions& options,
               const std::atomic<bool>& abort)
    : mesh_(mesh),
      watch_(watch),
      lines_(lines),
      options_(options),
      abort_(abort),
      places_(options.members),
      came_(options.members - options.ranks) {}

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

// Partial sums from ranks, and results from helpers, come to places.
Result<void> Runner::make_all_places(const Work& work, const Program& program) {
  for (std::size_t link = 0; link < program.links(); ++link) {
    const Program::Link& facts = program.link(link);
    if (facts.sends || (!facts.up && !is_helper(facts.peer))) continue;
    const std::uint64_t longest = std::min(work.chunk, facts.elements) * element_;
    const Member peer = place_of(work, facts.peer);
    if (is_helper(peer) && lines_->lost(peer - options_.ranks)) continue;
    if (const auto ok = make_places(peer, longest); !ok) return ok;
  }
  return {};
}

std::optional<Blame> Runner::run(const Work& work) {
  element_ = element_bytes(work.type);
  number_ = work.number;
  kind_ = (static_cast<int>(work.type) * static_cast<int>(kReductions) + static_cast<int>(work.reduction)) * 2 +
          (work.collective == Collective::kAllGather ? 1 : 0);
  if (auto found = watch_.look()) return found;
  Program program(*work.seat, work.collective, work.ranges, work.chunk, kWindow);
  links_.clear();
  links_.resize(program.links());
  if (const auto ok = make_all_places(work, program); !ok) return blame(options_.self, ok.error());
  for (const std::uint32_t helper : work.helpers) {
    came_[helper] = 0;
    lines_->heard(helper);
  }
  auto moved_at = steady_clock::now();
  for (std::uint64_t looks = 0; !program.done(); ++looks) {
    bool moved = false;
    if (!work.helpers.empty()) watch_helpers(work, program);
    for (std::size_t link = 0; link < program.links(); ++link) {
      if (auto failed = take(work, program, link, moved)) return failed;
      if (auto failed = post(work, program, link, moved)) return failed;
    }
    if (auto failed = add_up(work, program, moved)) return failed;
    if (moved) {
      moved_at = steady_clock::now();
      continue;
    }
    constexpr std::uint64_t kLook = 16;
    if (looks % kLook == 0) {
      if (auto found = watch_.look()) return found;
      if (abort_.load(std::memory_order_relaxed)) return blame(options_.self, {ErrorCode::kInvalidUsage, "it gave up"});
      if (steady_clock::now() - moved_at > options_.stall) return stalled(work, program);
    }
    rest(moved_at);
  }
  return std::nullopt;
}

void Runner::watch_helpers(const Work& work, Program& program) {
  for (std::uint32_t at = 0; at < work.helpers.size(); ++at) {
    bool waits = false, open = false;
    for (std::size_t link = 0; link < program.links(); ++link) {
      if (program.link(link).peer != options_.ranks + at) continue;
      waits = waits || !links_[link].messages.empty();
      open = open || program.open(link);
    }
    lines_->poll(work.helpers[at], waits);
    if (open && lines_->lost(work.helpers[at])) lose(work, program, options_.ranks + at);
  }
}

void Runner::lose(const Work& work, Program& program, Member peer) {
  const Member at = place_of(work, peer);
  for (std::size_t link = 0; link < program.links(); ++link) {
    if (program.link(link).peer == peer) links_[link].messages.clear();
  }
  program.abandon(peer);
  places_[at].mr.reset();
  lines_->lose(at - options_.ranks);
  places_[at] = {};
}

std::optional<Blame> Runner::take(const Work& work, Program& program, std::size_t link, bool& moved) {
  Link& mine = links_[link];
  const Program::Link& facts = program.link(link);
  while (!mine.messages.empty()) {
    const Message message = mine.messages.front();
    const auto progress = message.request->test();
    const bool odd = progress && progress->done && progress->sizes[0] != message.bytes;
    if ((!progress || odd) && is_helper(facts.peer)) {
      lose(work, program, facts.peer);
      moved = true;
      return std::nullopt;
    }
    if (!progress) return channel_failed(facts.peer, progress.error());
    if (!progress->done) return std::nullopt;
    if (odd) {
      return blame(facts.peer, {ErrorCode::kInvalidUsage,
                                fmt::format("a message of {} bytes came where {} were expected; all ranks must start "
                                            "the same operations in the same order",
                                            progress->sizes[0], message.bytes)});
    }
    (facts.sends ? bytes_sent_ : bytes_received_) += message.bytes;
    ++(facts.sends ? messages_sent_ : messages_received_);
    if (message.from != nullptr) std::memcpy(message.to, message.from, message.bytes);
    if (is_helper(facts.peer)) {
      const std::uint32_t helper = work.helpers[facts.peer - options_.ranks];
      lines_->heard(helper);
      if (!facts.sends) came_[helper] += message.bytes / element_;
    }
    mine.messages.pop_front();
    program.ended(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::post(const Work& work, Program& program, std::size_t link, bool& moved) {
  Link& mine = links_[link];
  const Program::Link& facts = program.link(link);
  while (mine.messages.size() < kPosted) {
    const auto next = program.next(link);
    if (!next) return std::nullopt;
    const Member peer = place_of(work, facts.peer);
    std::byte* const own = work.data + (next->range.begin - work.first) * element_;
    Message message{nullptr, next->range.size() * element_};
    Result<transport::Request*> request = nullptr;
    if (facts.sends) {
      transport::FlowTag flow;
      flow.coflow = number_;
      flow.bytes = facts.elements * element_;
      request = mesh_.to(peer).send(*work.memory->to_send[peer], offset_in(*work.memory, own), message.bytes,
                                    tag(facts.up), flow);
    } else {
      const bool helpers_result = !facts.up && is_helper(facts.peer);
      const Places& places = places_[peer];
      const std::uint64_t place = (facts.up ? next->place : program.posted_messages(link) % kPosted) * places.each;
      const bool placed = facts.up || helpers_result;
      if (helpers_result) {
        message.from = places.memory.get() + place;
        message.to = own;
      }
      const transport::RecvPart part{placed ? places.mr.get() : work.memory->to_receive[peer].get(),
                                     placed ? static_cast<std::size_t>(place) : offset_in(*work.memory, own),
                                     message.bytes, tag(facts.up)};
      request = mesh_.from(peer).recv({&part, 1});
    }
    if (!request && is_helper(facts.peer)) {
      lose(work, program, facts.peer);
      return std::nullopt;
    }
    if (!request) return channel_failed(peer, request.error());
    if (*request == nullptr) return std::nullopt;
    message.request = *request;
    mine.messages.push_back(message);
    program.posted(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::add_up(const Work& work, Program& program, bool& moved) {
  while (const auto sum = program.next_sum()) {
    std::byte* const own = work.data + (sum->range.begin - work.first) * element_;
    inputs_.clear();
    for (const Program::Sum::Input& input : sum->inputs) {
      if (input.link == Program::Sum::kOwn) {
        inputs_.push_back(own);
        continue;
      }
      const Places& places = places_[place_of(work, program.link(input.link).peer)];
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
    if (auto found = watch_.look()) return *found;
    std::this_thread::yield();
  } while (steady_clock::now() < until && watch_.silent(peer));
  return blame(peer, error);
}

// Who holds it up is not seen from here: in most plans it is no neighbour.
Blame Runner::stalled(const Work& work, const Program& program) const {
  std::string text = fmt::format("nothing moved for {:.3g} s", std::chrono::duration<double>(options_.stall).count());
  for (std::size_t link = 0; link < program.links(); ++link) {
    if (links_[link].messages.empty()) continue;
    const Program::Link& facts = program.link(link);
    text += fmt::format("; {} waits for {} to {} {} bytes", name_of(options_.self, options_.ranks),
                        name_of(place_of(work, facts.peer), options_.ranks), facts.sends ? "take" : "send",
                        links_[link].messages.front().bytes);
    break;
  }
  return {kNobody, {ErrorCode::kRemote, text + "; all ranks must start the same operations in the same order"}};
}

EngineTraffic Runner::traffic() const {
  return {bytes_sent_.load(), bytes_received_.load(), messages_sent_.load(), messages_received_.load()};
}

}  // namespace clustar::paraexpress
