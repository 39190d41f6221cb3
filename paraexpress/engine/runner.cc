#include "paraexpress/engine/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "paraexpress/engine/poll_pause.h"

namespace clustar::paraexpress {
namespace {

constexpr std::uint64_t kCommunicator = 0x7061726165787072;  // all groups of a job are one to schedulers
constexpr std::uint8_t kAllReduce = 4;                       // ncclFunc_t

using std::chrono::steady_clock;

// A prime above the number of kinds.
constexpr int kChecks = 127;
static_assert(static_cast<int>(kDataTypes * kReductions) * kCollectives < kChecks);

int kind_of(const Work& work) {
  return (static_cast<int>(work.type) * static_cast<int>(kReductions) + static_cast<int>(work.reduction)) *
             kCollectives +
         static_cast<int>(work.collective);
}

std::size_t offset_in(const Registered& memory, const std::byte* at) {
  return static_cast<std::size_t>(at - memory.begin);
}

}  // namespace

Running::Running(Work work, std::uint32_t window)
    : work_(std::move(work)),
      program_(*work_.seat, work_.collective, work_.ranges, work_.chunk, window),
      element_(element_bytes(work_.type)),
      links_(program_.links()) {}

Runner::Runner(Mesh& mesh, Watch& watch, HelperLines* lines, const RunnerOptions& options,
               const std::atomic<bool>& abort)
    : mesh_(mesh),
      watch_(watch),
      lines_(lines),
      options_(options),
      waits_(options.waits),
      abort_(abort),
      came_(options.members - options.ranks) {
  for (Slot& slot : slots_) slot.places.resize(options.members);
}

void Runner::release() {
  for (Slot& slot : slots_) {
    for (Places& places : slot.places) places.mr.reset();
  }
}

// A link's messages are told from those of the other direction, of a neighbouring operation and of one that another
// rank takes for something else; the order does the rest. Two ranks that both take themselves for the root of a
// broadcast only send: the next operation finds it out. Helpers know of no broadcasts, nor of what the ranks agreed on.
// Tags are few and come again: a connection of MLT takes 4,096 different ones (mlt/core/options.h).
int Runner::tags_of(const Work& work) {
  constexpr int kNumbers = 16;
  static_assert(kChecks * kNumbers * 2 + 4 < 4096);
  roots_ = (roots_ + static_cast<int>(work.root)) % kChecks;
  const bool with_helpers = lines_ == nullptr || !work.helpers.empty();
  const int agreed = with_helpers ? 0 : roots_ + static_cast<int>(work.agreed % kChecks);
  return 1 + ((kind_of(work) + agreed) % kChecks * kNumbers + static_cast<int>(work.number % kNumbers)) * 2;
}

Result<void> Runner::make_places(const Running& one) {
  for (std::size_t link = 0; link < one.program_.links(); ++link) {
    const Program::Link& facts = one.program_.link(link);
    if (facts.sends || (!facts.up && !is_helper(facts.peer))) continue;
    const Member peer = place_of(one.work_, facts.peer);
    if (is_helper(peer) && lines_->lost(peer - options_.ranks)) continue;
    const std::uint64_t bytes = std::min(one.work_.chunk, facts.elements) * one.element_;
    Places& places = slots_[one.slot_].places[peer];
    if (places.each >= bytes) continue;
    places.mr.reset();
    places.memory.reset(new std::byte[bytes * kWindow]);
    auto mr = mesh_.from(peer).reg_mr(gdr::MemoryRef::host(places.memory.get(), bytes * kWindow));
    if (!mr) return tl::unexpected(mr.error());
    places.mr = std::move(*mr);
    places.each = bytes;
  }
  return {};
}

tl::expected<std::unique_ptr<Running>, Blame> Runner::begin(Work work) {
  if (auto found = watch_.look()) return tl::unexpected(*found);
  std::unique_ptr<Running> one(new Running(std::move(work), kWindow));
  const auto free = std::ranges::find_if(slots_, [](const Slot& slot) { return !slot.taken; });
  one->slot_ = static_cast<std::size_t>(free - slots_.begin());
  one->tags_ = tags_of(one->work_);
  if (const auto ok = make_places(*one); !ok) return tl::unexpected(blame(options_.self, ok.error()));
  free->taken = true;
  for (const std::uint32_t helper : one->work_.helpers) {
    came_[helper] = 0;
    lines_->heard(helper);
  }
  moved();
  return one;
}

std::optional<Blame> Runner::advance(Running& one, bool& moved) {
  if (!one.work_.helpers.empty()) watch_helpers(one);
  for (std::size_t link = 0; link < one.program_.links(); ++link) {
    if (auto failed = take(one, link, moved)) return failed;
    if (auto failed = post(one, link, moved)) return failed;
  }
  return add_up(one, moved);
}

void Runner::moved() {
  moved_at_ = steady_clock::now();
  looks_ = 0;
}

std::optional<Blame> Runner::rest(const Running& one) {
  const auto now = steady_clock::now();
  const auto idle = now - moved_at_;
  constexpr std::uint64_t kLook = 16;
  if (looks_++ % kLook == 0) {
    if (auto found = watch_.look()) return found;
    if (abort_.load(std::memory_order_relaxed)) return blame(options_.self, {ErrorCode::kInvalidUsage, "it gave up"});
    if (idle > waits_.each || now > waits_.until) return stalled(one);
  }
  // A neighbour computes, perhaps on this core.
  if (const auto pause = poll_pause(idle); pause.count() > 0) {
    std::this_thread::sleep_for(pause);
  } else {
    std::this_thread::yield();
  }
  return std::nullopt;
}

std::optional<Blame> Runner::run(const Work& work) {
  const auto one = begin(work);
  if (!one) return one.error();
  while (!(*one)->done()) {
    bool any = false;
    if (auto failed = advance(**one, any)) return failed;
    if (any) {
      moved();
    } else if (auto failed = rest(**one)) {
      return failed;
    }
  }
  finish(**one);
  return std::nullopt;
}

void Runner::watch_helpers(Running& one) {
  const Work& work = one.work_;
  const Program& program = one.program_;
  for (std::uint32_t at = 0; at < work.helpers.size(); ++at) {
    bool waits = false, open = false;
    for (std::size_t link = 0; link < program.links(); ++link) {
      if (program.link(link).peer != options_.ranks + at) continue;
      waits = waits || !one.links_[link].messages.empty();
      open = open || program.open(link);
    }
    lines_->poll(work.helpers[at], waits);
    if (open && lines_->lost(work.helpers[at])) lose(one, options_.ranks + at);
  }
}

void Runner::lose(Running& one, Member peer) {
  const Member at = place_of(one.work_, peer);
  for (std::size_t link = 0; link < one.program_.links(); ++link) {
    if (one.program_.link(link).peer == peer) one.links_[link].messages.clear();
  }
  one.program_.abandon(peer);
  for (Slot& slot : slots_) slot.places[at].mr.reset();
  lines_->lose(at - options_.ranks);
  for (Slot& slot : slots_) slot.places[at] = {};
}

std::optional<Blame> Runner::take(Running& one, std::size_t link, bool& moved) {
  Program& program = one.program_;
  Running::Link& mine = one.links_[link];
  const Program::Link& facts = program.link(link);
  while (!mine.messages.empty()) {
    const Running::Message message = mine.messages.front();
    const auto progress = message.request->test();
    const bool odd = progress && progress->done && progress->sizes[0] != message.bytes;
    if ((!progress || odd) && is_helper(facts.peer)) {
      lose(one, facts.peer);
      moved = true;
      return std::nullopt;
    }
    if (!progress) return who_failed(watch_, facts.peer, progress.error());
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
      const std::uint32_t helper = one.work_.helpers[facts.peer - options_.ranks];
      lines_->heard(helper);
      if (!facts.sends) came_[helper] += message.bytes / one.element_;
    }
    mine.messages.pop_front();
    program.ended(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::post(Running& one, std::size_t link, bool& moved) {
  const Work& work = one.work_;
  Program& program = one.program_;
  Running::Link& mine = one.links_[link];
  const Program::Link& facts = program.link(link);
  while (mine.messages.size() < kPosted) {
    const auto next = program.next(link);
    if (!next) return std::nullopt;
    const Member peer = place_of(work, facts.peer);
    std::byte* const own = work.data + (next->range.begin - work.first) * one.element_;
    Running::Message message{nullptr, next->range.size() * one.element_};
    Result<transport::Request*> request = nullptr;
    if (facts.sends) {
      transport::FlowTag flow;
      flow.coflow = work.number;
      flow.bytes = facts.elements * one.element_;
      // As NCCL's profiler says it, so that schedulers know that the sums of a job repeat.
      flow.identity = {.known = true,
                       .communicator = kCommunicator,
                       .number = work.number % transport::MessageIdentity::kNumbers,
                       .total_bytes = flow.bytes,
                       .function = kAllReduce};
      request = mesh_.to(peer).send(*work.memory->to_send[peer], offset_in(*work.memory, own), message.bytes,
                                    one.tags_ + (facts.up ? 1 : 0), flow);
    } else {
      const bool helpers_result = !facts.up && is_helper(facts.peer);
      const Places& places = slots_[one.slot_].places[peer];
      const std::uint64_t place = (facts.up ? next->place : program.posted_messages(link) % kPosted) * places.each;
      const bool placed = facts.up || helpers_result;
      if (helpers_result) {
        message.from = places.memory.get() + place;
        message.to = own;
      }
      const transport::RecvPart part{placed ? places.mr.get() : work.memory->to_receive[peer].get(),
                                     placed ? static_cast<std::size_t>(place) : offset_in(*work.memory, own),
                                     message.bytes, one.tags_ + (facts.up ? 1 : 0)};
      request = mesh_.from(peer).recv({&part, 1});
    }
    if (!request && is_helper(facts.peer)) {
      lose(one, facts.peer);
      return std::nullopt;
    }
    if (!request) return who_failed(watch_, peer, request.error());
    if (*request == nullptr) return std::nullopt;
    message.request = *request;
    mine.messages.push_back(message);
    program.posted(link);
    moved = true;
  }
  return std::nullopt;
}

std::optional<Blame> Runner::add_up(Running& one, bool& moved) {
  const Work& work = one.work_;
  Program& program = one.program_;
  while (const auto sum = program.next_sum()) {
    std::byte* const own = work.data + (sum->range.begin - work.first) * one.element_;
    inputs_.clear();
    for (const Program::Sum::Input& input : sum->inputs) {
      if (input.link == Program::Sum::kOwn) {
        inputs_.push_back(own);
        continue;
      }
      const Places& places = slots_[one.slot_].places[place_of(work, program.link(input.link).peer)];
      inputs_.push_back(places.memory.get() + input.place * places.each);
    }
    reduce_into(own, inputs_, sum->range.size(), work.type, work.reduction);
    program.summed();
    moved = true;
  }
  return std::nullopt;
}

// Who holds it up is not seen from here: in most plans it is no neighbour.
Blame Runner::stalled(const Running& one) const {
  const bool over = steady_clock::now() > waits_.until;
  std::string text =
      over ? "the time for it is over"
           : fmt::format("nothing moved for {:.3g} s", std::chrono::duration<double>(waits_.each).count());
  for (std::size_t link = 0; link < one.program_.links(); ++link) {
    if (one.links_[link].messages.empty()) continue;
    const Program::Link& facts = one.program_.link(link);
    text += fmt::format("; {} waits for {} to {} {} bytes", name_of(options_.self, options_.ranks),
                        name_of(place_of(one.work_, facts.peer), options_.ranks), facts.sends ? "take" : "send",
                        one.links_[link].messages.front().bytes);
    break;
  }
  return {kNobody, {ErrorCode::kRemote, text + "; all ranks must start the same operations in the same order"}};
}

EngineTraffic Runner::traffic() const {
  return {bytes_sent_.load(), bytes_received_.load(), messages_sent_.load(), messages_received_.load()};
}

}  // namespace clustar::paraexpress
