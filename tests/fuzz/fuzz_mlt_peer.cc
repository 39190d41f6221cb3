// Two endpoints with a connection whose ends are lied to by a peer that holds its secret, and honest ones beside it.
// The input plays the network of all of them, the users who send and post, and the liar: it rewrites fields of genuine
// packets, once or of all that pass, and makes packets of its own. Nothing may crash, turn forever, grow without bound
// or leave its place; the honest connections deliver every byte, and end soon once their network behaves.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "mlt/compare/recoveries.h"
#include "mlt/core/endpoint.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/mlt_lies.h"
#include "tests/fuzz/mlt_link.h"

// Of AddressSanitizer; nullptr without it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace {

using namespace clustar;
using namespace clustar::mlt;

using fuzz::Input;
using fuzz::Lie;
using fuzz::Link;
using fuzz::require;
using fuzz::Way;
using fuzz::Wire;

constexpr std::uint64_t kSecret = 0x1234567890abcdef;
constexpr int kMostSteps = 1000;
constexpr int kEndless = 100'000;
constexpr std::size_t kQueue = 1000;  // packets; more are lost
constexpr std::size_t kMostHeap = 32u << 20;
constexpr Duration kFlight = std::chrono::microseconds(5);

std::size_t heap() {
  return __sanitizer_get_current_allocated_bytes == nullptr ? 0 : __sanitizer_get_current_allocated_bytes();
}

Congestion congestion_of(std::uint32_t choice) {
  switch (choice % 4) {
    case 0: return FixedRate();
    case 1: return Dctcp();
    default: return {};
  }
}

Options options_from(Input& input) {
  constexpr std::array<std::uint16_t, 4> kSegments = {64, 200, 1408, 65};
  static const compare::GoBackN go_back_n{};
  static const compare::StaticDeadline deadline(std::chrono::milliseconds(1));
  constexpr std::array<const Recovery*, 4> kRecoveries = {nullptr, nullptr, &go_back_n, &deadline};
  constexpr std::array<std::uint8_t, 4> kPaths = {1, 2, 4, kMaxPaths};
  constexpr std::array<std::uint32_t, 4> kMessages = {16, 4, 2, 1};
  constexpr std::array<std::uint32_t, 4> kStaged = {8, 2, 1, 0};
  constexpr std::array<std::uint32_t, 4> kUnscheduled = {1000, 0, 100, 16 * 1024};
  constexpr std::array<std::uint32_t, 4> kInFlight = {64, 4, 2, 1};
  Options options;
  std::uint32_t bits = input.byte();
  options.segment = kSegments[bits % 4];
  options.recovery = kRecoveries[bits / 4 % 4];
  options.paths = kPaths[bits / 16 % 4];
  options.max_messages = kMessages[bits / 64 % 4];
  bits = input.byte();
  options.max_staged = kStaged[bits % 4];
  options.unscheduled_bytes = kUnscheduled[bits / 4 % 4];
  options.max_in_flight = kInFlight[bits / 16 % 4];
  options.congestion = congestion_of(bits / 64);
  bits = input.byte();
  // With the slow line and no slack there is credit for one connection at a time.
  options.credit_slack = bits % 2 == 0 ? 32 * 1024 : 0;
  options.line_rate = bits / 2 % 2 == 0 ? 12'500'000'000 : 10'000'000;
  options.cut_long = bits / 4 % 2 == 1;
  options.reorder_packets = bits / 8 % 2 == 0 ? 3 : 1;
  options.ack_every = bits / 16 % 2 == 0 ? 16 : 1;
  options.mouse_bytes = bits / 32 % 2 == 0 ? 16 * 1024 : 0;
  options.max_tolerance_ppm = bits / 64 % 4 == 3 ? 0 : 1'000'000;
  options.parity = bits % 2 == 0;
  options.parity_from = Duration(0);
  options.max_parity = bits / 4 % 2 == 1 ? 2 : 8;
  options.peer_timeout = std::chrono::hours(2);  // longer than all of an input's steps
  return options;
}

// The next packets of one sort of the liar's connection are changed like this on their way.
struct Rule {
  std::size_t sort = 0;  // of Packet
  int left = 0;          // packets
  Lie lie;
};

class World {
 public:
  explicit World(Input& input) : options_(options_from(input)), ends_{Endpoint(options_, 1), Endpoint(options_, 2)} {
    const std::uint32_t bits = input.byte();
    open(0, 1, input.byte(), false);
    open(0, 1, input.byte(), true);
    if (bits % 2 == 1) open(1, 0, input.byte(), true);
    tireless_ = bits / 2 % 2 == 1;
  }

  void step(Input& input) {
    const std::uint32_t what = input.byte();
    // Half of all choices fall on the liar's connection.
    const std::uint32_t chosen = what / 16 % 4;
    Link& link = chosen < 2 ? *links_[0] : *links_[1 + chosen % (links_.size() - 1)];
    const bool variant = what / 64 % 2 == 1;
    switch (what % 16) {
      case 0:
      case 1: send(link, input); break;
      case 2: post(link, input); break;
      case 3:
      case 4: deliver(link, variant ? Way::kBack : Way::kForth, input.byte()); break;
      case 5: disturb(link, variant ? Way::kBack : Way::kForth, input); break;
      case 6: pass(Duration(input.byte() * (variant ? 2'000'000 : 4000) + 1)); break;
      case 7: drain(1 + input.byte() * input.byte()); break;
      case 8:
      case 9: run(1 + input.byte() % 8); break;
      case 10:
      case 11: rewrite(variant ? Way::kBack : Way::kForth, input); break;
      case 12: forge(variant ? Way::kBack : Way::kForth, input); break;
      case 13: rule(input); break;
      case 14: variant ? link.release_all() : reopen(input); break;
      default:
        send(link, input);
        post(link, input);
        run(1 + input.byte() % 4);
        break;
    }
    check();
  }

  // The honest connections' network loses nothing any more and takes the same time for all, and each message gets its
  // receive: all must end, and never is nothing new for long. The liar falls silent after a while, or repeats itself
  // forever.
  void settle() {
    constexpr int kLiarsRounds = 100;
    constexpr int kMostIdle = 50'000;                    // rounds
    constexpr Duration kSoon = std::chrono::minutes(1);  // a probe waits for four round trips, each of 10 s at most
    std::uint64_t done = 0;
    TimePoint done_at = now_;
    for (int round = 0, idle = 0; !level(); ++round, ++idle) {
      silence_ = round >= kLiarsRounds && !tireless_;
      if (!silence_ && repeated_ && lies_at_ <= now_) {
        arrive(*links_.front(), repeated_->first, repeated_->second, false, true);
        lies_at_ = now_ + std::max<Duration>(kOften, (now_ - done_at) / 1000);
      }
      run(1);
      wait();
      if (std::exchange(done, progress()) != done) {
        done_at = now_;
        idle = 0;
      }
      require(idle < kMostIdle && now_ - done_at < kSoon);
    }
    check();
    links_.clear();
    check();
  }

 private:
  void open(std::size_t from, std::size_t to, std::uint32_t bits, bool honest) {
    Options sends = options_;
    Options receives = options_;
    // A connection's packets may be smaller than its endpoint's, at each end.
    if (bits % 4 == 1) sends.segment = kMinSegment;
    if (bits / 4 % 4 == 1) receives.segment = kMinSegment;
    if (bits / 16 % 4 == 1) receives.max_tolerance_ppm = 0;
    if (!honest && bits / 64 % 4 == 1) sends.max_tags = receives.max_tags = 2;
    if (!honest && bits / 64 % 4 == 2) sends.peer_timeout = receives.peer_timeout = std::chrono::milliseconds(200);
    const std::uint64_t secret = kSecret + (opened_++ << 32);
    links_.push_back(
        std::make_unique<Link>(Link::End{ends_[from], sends}, Link::End{ends_[to], receives}, secret, honest, now_));
  }

  // Of the liar's connection, whose late packets stay.
  void reopen(Input& input) {
    std::unique_ptr<Link> old = std::move(links_.front());
    links_.erase(links_.begin());
    std::array<std::vector<Wire>, 2> late = {std::move(old->wires(Way::kForth)), std::move(old->wires(Way::kBack))};
    old.reset();
    open(0, 1, input.byte(), false);
    std::rotate(links_.begin(), links_.end() - 1, links_.end());
    links_.front()->wires(Way::kForth) = std::move(late[0]);
    links_.front()->wires(Way::kBack) = std::move(late[1]);
    templates_ = {};
    repeated_.reset();
  }

  // Sizes from none to some hundred packets, mostly small.
  static std::uint32_t size(Input& input) {
    const std::uint32_t a = input.byte();
    return a < 128 ? a : (a - 127) * (a < 250 ? 37 : 150);
  }

  void send(Link& link, Input& input) {
    const std::uint32_t tag = input.byte() % Link::kTags;
    const std::uint32_t bytes = size(input);
    link.send(tag, bytes, input.byte(), now_);
    events();
  }

  void post(Link& link, Input& input) {
    const std::uint32_t bits = input.byte();
    link.post(bits % Link::kTags, bits / 4 % 4 == 1 ? size(input) : 64 * 1024, now_);
    events();
  }

  void deliver(Link& link, Way way, std::uint32_t which) {
    std::vector<Wire>& queue = link.wires(way);
    if (queue.empty()) return;
    const auto at = queue.begin() + static_cast<std::ptrdiff_t>(which / 4 % queue.size());
    const Wire wire = std::move(*at);
    queue.erase(at);
    arrive(link, way, wire, which % 4 == 1, which % 4 != 2);
  }

  void arrive(Link& link, Way way, const Wire& wire, bool marked, bool can_stage) {
    link.arrive(way, wire, marked, can_stage, now_);
    events();
  }

  static void disturb(Link& link, Way way, Input& input) {
    std::vector<Wire>& queue = link.wires(way);
    const std::uint32_t how = input.byte();
    if (queue.empty()) return;
    const auto at = queue.begin() + static_cast<std::ptrdiff_t>(how / 4 % queue.size());
    switch (how % 4) {
      case 0: queue.erase(at); break;
      case 1: queue.erase(at, queue.end()); break;
      case 2: std::rotate(at, at + 1, queue.end()); break;
      default:
        if (queue.size() < kQueue) queue.push_back(Wire(*at));
        break;
    }
  }

  // What a rewritten header says of its payload's length, so that it is not thrown away for that.
  static Wire wire_of(const Packet& packet, Wire wire, std::uint32_t wrong_by) {
    wire.header.resize(kMaxHeader);
    wire.header.resize(serialize(packet, wire.header));
    wire.payload = 0;
    if (const auto* data = std::get_if<DataHeader>(&packet)) {
      wire.payload = payload_bytes(*data) + wrong_by;
    }
    return wire;
  }

  // A genuine packet with other values; instead of it or besides, now or when its turn comes.
  void rewrite(Way way, Input& input) {
    Link& link = *links_.front();
    std::vector<Wire>& queue = link.wires(way);
    const std::uint32_t how = input.byte();
    if (queue.empty()) drain(kEndless);
    if (queue.empty()) return;
    const std::size_t which = how / 16 % queue.size();
    std::optional<Packet> packet = parse(queue[which].header);
    if (!packet) return;
    for (std::uint32_t n = 0; n <= how % 4; ++n) fuzz::apply(*packet, fuzz::lie_from(input), seen_);
    fuzz::mend(*packet);
    const Wire wire = wire_of(*packet, queue[which], 0);
    if (how / 4 % 2 == 0) queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(which));
    repeated_ = {way, wire};
    if (how / 8 % 2 == 0) {
      arrive(link, way, wire, false, true);
    } else if (queue.size() < kQueue) {
      queue.push_back(wire);
    }
  }

  // A packet out of nothing, or like the latest genuine one of its sort.
  void forge(Way way, Input& input) {
    Link& link = *links_.front();
    const std::uint32_t how = input.byte();
    const std::uint32_t about = input.byte();
    Packet packet = fuzz::blank(how, link.secret(), seen_[about], link.segment());
    const std::optional<Packet>& genuine = templates_[packet.index()];
    if (how / 8 % 2 == 0 && genuine) packet = *genuine;
    for (std::uint32_t n = 0; n <= how / 16 % 8; ++n) fuzz::apply(packet, fuzz::lie_from(input), seen_);
    fuzz::mend(packet);
    repeated_ = {way, wire_of(packet, {}, about == 255 ? 1 : 0)};
    arrive(link, way, repeated_->second, false, true);
  }

  void rule(Input& input) {
    constexpr std::size_t kMostRules = 4;
    constexpr std::array<std::size_t, 8> kSorts = {0, 1, 1, 2, 3, 3, 4, 0};
    constexpr std::array<int, 4> kTimes = {1, 3, 20, kEndless};
    const std::uint32_t bits = input.byte();
    if (rules_.size() == kMostRules) rules_.erase(rules_.begin());
    if (bits / 32 == 7) rules_.clear();
    rules_.push_back({kSorts[bits % 8], kTimes[bits / 8 % 4], fuzz::lie_from(input)});
  }

  void events() {
    for (Endpoint& end : ends_) {
      int count = 0;
      while (const auto event = end.poll_event()) {
        require(++count < kEndless);
        const auto [link, way] = of(end, event->connection);
        link->on_event(way, *event, now_);
      }
    }
  }

  std::pair<Link*, Way> of(const Endpoint& end, Endpoint::ConnectionId id) {
    for (auto& link : links_) {
      Way way{};
      if (link->is(end, id, way)) return {link.get(), way};
    }
    require(false);
    return {};
  }

  void drain(int most) {
    for (Endpoint& end : ends_) {
      for (int i = 0; i < most; ++i) {
        auto out = end.poll_transmit(now_);
        if (!out) break;
        require(i + 1 < kEndless);
        const auto [link, way] = of(end, out->connection);
        emit(*link, way, out->transmit);
      }
    }
    events();
  }

  void emit(Link& link, Way way, Transmit& out) {
    const Wire wire{{}, out.length, out.message, out.offset};
    Packet packet = std::move(out.header);
    if (!link.honest()) {
      if (silence_) return;
      note(packet);
      for (Rule& rule : rules_) {
        if (rule.sort != packet.index() || rule.left == 0) continue;
        --rule.left;
        fuzz::apply(packet, rule.lie, seen_);
      }
      fuzz::mend(packet);
    }
    if (link.wires(way).size() < kQueue) link.wires(way).push_back(wire_of(packet, wire, 0));
  }

  void note(const Packet& packet) {
    templates_[packet.index()] = packet;
    if (const auto* data = std::get_if<DataHeader>(&packet)) {
      for (const std::uint32_t number : {data->path_seq, data->message, data->sent_units}) seen_.note(number);
    } else if (const auto* ack = std::get_if<Ack>(&packet)) {
      for (const std::uint32_t number : {ack->credit_units, ack->finished_below}) seen_.note(number);
    } else if (const auto* probe = std::get_if<Probe>(&packet)) {
      seen_.note(probe->message);
    }
  }

  // Round trips over a network that does nothing to the packets.
  void run(std::uint32_t rounds) {
    for (; rounds > 0; --rounds) {
      drain(kEndless);
      now_ += kFlight;
      for (auto& link : links_) {
        for (const Way way : {Way::kForth, Way::kBack}) {
          for (const Wire& wire : std::exchange(link->wires(way), {})) arrive(*link, way, wire, false, true);
        }
      }
      tick();
      drain(kEndless);
    }
  }

  // What the users of the honest connections still owe each other; true when these are over.
  bool level() {
    bool over = true;
    for (auto& link : links_) {
      link->release_all();
      if (!link->honest()) continue;
      link->level(now_);
      over = over && link->over();
    }
    events();
    return over;
  }

  std::uint64_t progress() {
    std::uint64_t sum = 0;
    for (auto& link : links_) sum += link->honest() ? link->progress() : 0;
    return sum;
  }

  void pass(Duration time) {
    now_ += time;
    tick();
  }

  // An endpoint that is called at its time, and asked until nothing may go, has a later time then.
  void tick() {
    constexpr int kMost = 100;
    for (Endpoint& end : ends_) {
      for (int i = 0; end.next_timeout() <= now_; ++i) {
        require(i < kMost);
        end.on_timeout(now_);
        events();
        if (i > 0) drain(kEndless);
      }
    }
  }

  // Until something happens on the honest connections, or the liar speaks again.
  void wait() {
    for (auto& link : links_) {
      if (link->honest() && !(link->wires(Way::kForth).empty() && link->wires(Way::kBack).empty())) return;
    }
    TimePoint next = std::min(ends_[0].next_timeout(), ends_[1].next_timeout());
    if (!silence_ && repeated_) next = std::min(next, lies_at_);
    if (next != TimePoint::max()) pass(std::max<Duration>(next - now_, kFlight));
  }

  void check() {
    for (const Endpoint& end : ends_) {
      require(end.is_consistent());
      require(end.timers() <= 65 + 4 * kMostConnections);
    }
    require(heap() < heap_before_ + kMostHeap);
  }

  static constexpr std::size_t kMostConnections = 4;  // of an endpoint: a new one may open before the old one closes

  const std::size_t heap_before_ = heap();
  const Options options_;
  TimePoint now_{std::chrono::seconds(1)};
  std::array<Endpoint, 2> ends_;
  std::vector<std::unique_ptr<Link>> links_;  // the liar's first
  std::uint64_t opened_ = 0;
  std::vector<Rule> rules_;
  fuzz::Numbers seen_;                                                        // of the liar's connection
  std::array<std::optional<Packet>, std::variant_size_v<Packet>> templates_;  // likewise
  std::optional<std::pair<Way, Wire>> repeated_;                              // its latest lie
  // A tireless liar speaks so often at first, and more rarely the longer nothing else happens: a probe that honest ends
  // wait for after round trips of seconds would otherwise come after a hundred thousand lies.
  static constexpr Duration kOften = std::chrono::microseconds(300);
  bool tireless_ = false;
  bool silence_ = false;
  TimePoint lies_at_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  World world(input);
  for (int steps = 0; !input.empty() && steps < kMostSteps; ++steps) world.step(input);
  world.settle();
  return 0;
}
