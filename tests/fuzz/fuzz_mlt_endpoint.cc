// Two endpoints and the network between them, which the input plays: it sends, posts, delivers, drops, duplicates,
// reorders, damages and forges packets, and lets time pass. Nothing may crash, turn forever, or place a byte outside a
// receive. As long as nothing was damaged or forged, every byte must come to its place once, and when the network
// behaves again, everything must end.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "mlt/core/endpoint.h"
#include "tests/fuzz/input.h"

namespace {

using namespace clustar;
using namespace clustar::mlt;

using fuzz::Input;
using fuzz::require;

constexpr std::uint64_t kSecret = 0x1234567890abcdef;
constexpr std::uint32_t kTags = 3;
constexpr int kEndless = 200'000;
constexpr Duration kFlight = std::chrono::microseconds(5);

Options options_from(Input& input) {
  Options options;
  const std::uint32_t bits = input.byte();
  options.segment = (bits & 1) != 0 ? 64 : 200;
  options.paths = (bits & 2) != 0 ? 1 : 4;
  options.max_messages = (bits & 4) != 0 ? 4 : 16;
  options.max_staged = (bits & 8) != 0 ? 1 : 8;
  options.unscheduled_bytes = (bits & 16) != 0 ? 0 : 1000;
  options.max_in_flight = (bits & 32) != 0 ? 4 : 64;
  options.credit_slack = (bits & 64) != 0 ? 0 : 32 * 1024;
  options.line_rate = (bits & 128) != 0 ? 1'000'000'000 : 12'500'000'000;
  options.peer_timeout = std::chrono::hours(1);
  options.max_tolerance_ppm = 1'000'000;
  options.parity = true;
  options.parity_from = Duration(0);
  options.max_parity = (bits & 8) != 0 ? 1 : 8;
  return options;
}

struct Wire {
  std::vector<std::byte> header;
  std::uint32_t payload = 0;
};

class Pair {
 public:
  explicit Pair(const Options& options) : options_(options), sender_(options_, 1), receiver_(options_, 2) {
    to_ = sender_.open_sender(7, kSecret, now_);
    from_ = receiver_.open_receiver(8, kSecret, now_);
  }

  void step(Input& input) {
    const std::uint32_t what = input.byte();
    const bool variant = (what & 16) != 0;
    switch (what % 16) {
      case 0:
      case 1: {
        // One after the other: arguments are evaluated in whatever order a compiler likes.
        const std::uint32_t tag = input.byte() % kTags;
        const std::uint32_t bytes = size(input);
        send(tag, bytes, variant, input.byte());
        break;
      }
      case 2:
      case 3: post(input.byte() % kTags, 64 * 1024); break;
      case 4: {
        const std::uint32_t tag = input.byte() % kTags;
        post(tag, size(input));
        break;
      }
      case 5:
      case 6:
      case 7: deliver(forth_, input.byte(), true); break;
      case 8:
      case 9: deliver(back_, input.byte(), false); break;
      case 10:
      case 11: {
        std::vector<Wire>& queue = input.byte() % 2 == 0 ? forth_ : back_;
        what % 16 == 10 ? drop(queue, input.byte()) : duplicate(queue, input.byte());
        break;
      }
      case 12: pass(Duration(input.byte() * 4000 + 1)); break;
      case 13: pass(Duration(input.byte() * 2'000'000 + 1)); break;
      case 14: drain(1000, variant); break;
      default: hostile(input, variant); break;
    }
    require(sender_.is_consistent() && receiver_.is_consistent());
  }

  // Nothing is lost any more, and each message gets its receive: all must end. Packets take their time, or a round trip
  // of half a second, which the input may have made, would never be forgotten: one of no time is no sample.
  void settle() {
    for (int round = 0; round < 20000 && !over(); ++round) {
      drain(kEndless, true);
      now_ += kFlight;
      while (!forth_.empty()) deliver(forth_, 0, true);
      while (!back_.empty()) deliver(back_, 0, false);
      for (std::uint32_t tag = 0; tag < kTags; ++tag) {
        while (posted_[tag] < sent_[tag].size() && post(tag, 64 * 1024)) {
        }
        while (posted_[tag] > sent_[tag].size() && send(tag, 100, false, 0)) {
        }
      }
      drain(kEndless, true);
      if (forth_.empty() && back_.empty()) wait();
    }
    require(hostile_ || over());
  }

 private:
  struct Sent {
    std::uint32_t message;
    std::uint32_t bytes;
    bool tolerant;
    Identity identity;
  };
  struct Posted {
    std::uint32_t tag;
    std::uint32_t seq;
    std::uint32_t length;
    std::vector<bool> placed;  // by packet
  };

  // Sizes from none to some hundred packets, mostly small.
  static std::uint32_t size(Input& input) {
    const std::uint32_t a = input.byte();
    return a < 128 ? a : (a - 127) * (a < 250 ? 37 : 400);
  }

  bool over() const {
    if (!open_.empty() || sends_ != sends_done_) return false;
    for (std::uint32_t tag = 0; tag < kTags; ++tag) {
      if (posted_[tag] != sent_[tag].size()) return false;
    }
    return true;
  }

  // A connection holds so many messages and receives. If some tags had all of them, those whose turn it is had none.
  bool crowded() const { return sends_ - received_ + ahead_ >= options_.max_messages; }

  bool send(std::uint32_t tag, std::uint32_t bytes, bool tolerant, std::uint32_t bits) {
    SendTerms terms;
    PacketBitmap important;
    if (tolerant) {
      terms.tolerant = true;
      terms.communicator = 1;
      terms.collective = bits % 2;
      terms.ranks = terms.edges = 4;
      terms.stage = static_cast<std::uint16_t>(bits / 2 % 4);
      terms.collective_bytes = 1 << 20;
      terms.tolerance_ppm = 100'000;
      require(important.reset(packet_count(bytes, options_.segment)));
      for (std::uint32_t i = 0; i < important.size(); i += 3) important.set(i);
      if (bits / 8 % 2 == 0) terms.important = &important;
    }
    if (bits / 16 % 2 == 1) {
      terms.identity.known = true;
      terms.identity.number = sends_;
      terms.identity.channel = static_cast<std::uint8_t>(bits);
    }
    const bool awaited = posted_[tag] > sent_[tag].size();
    if (!awaited && crowded()) return false;
    const auto message = sender_.send(to_, bytes, static_cast<std::int32_t>(tag), terms, now_);
    if (!message) return false;
    sent_[tag].push_back({*message, bytes, tolerant, terms.identity});
    if (awaited) --ahead_;
    ++sends_;
    events();
    return true;
  }

  bool post(std::uint32_t tag, std::uint32_t length) {
    const bool ahead = posted_[tag] >= sent_[tag].size();
    if (ahead && crowded()) return false;
    const auto receive = receiver_.post(from_, static_cast<std::int32_t>(tag), length, now_);
    if (!receive) return false;
    require(*receive < options_.max_messages && !open_.contains(*receive));
    if (ahead) ++ahead_;
    open_[*receive] = {tag, posted_[tag]++, length, std::vector<bool>(packet_count(length, options_.segment))};
    events();
    return true;
  }

  void deliver(std::vector<Wire>& queue, std::uint32_t which, bool forth) {
    if (queue.empty()) return;
    const std::size_t i = which % queue.size();
    const Wire packet = queue[i];
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
    arrive(packet, forth);
  }
  void drop(std::vector<Wire>& queue, std::uint32_t which) {
    if (!queue.empty()) queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(which % queue.size()));
  }
  void duplicate(std::vector<Wire>& queue, std::uint32_t which) {
    if (!queue.empty() && queue.size() < 2000) queue.push_back(Wire(queue[which % queue.size()]));
  }

  void arrive(const Wire& packet, bool forth) {
    Endpoint& endpoint = forth ? receiver_ : sender_;
    const auto arrival = endpoint.on_packet(packet.header, packet.payload, false, now_);
    const Placement& place = arrival.placement;
    if (place.kind != Placement::Kind::kDrop) {
      const auto parsed = parse(packet.header);
      require(forth && parsed.has_value() && place.length == packet.payload);
      const auto& data = std::get<DataHeader>(*parsed);
      if (place.kind == Placement::Kind::kPlace) {
        put(place.id, place.offset, place.length, data.message, data.index * data.segment);
      } else if (place.kind == Placement::Kind::kParity) {
        require(data.parity && place.id < options_.max_parity && place.length <= options_.segment);
        parity_[place.id] = {data.message, data.index};
      } else {
        require(place.id < options_.max_staged && place.offset + place.length <= options_.staging_bytes());
        staged_[{place.id, place.offset}] = {data.message, data.index * data.segment};
      }
    }
    events();
  }

  void put(std::uint32_t receive, std::uint32_t offset, std::uint32_t length, std::uint32_t message,
           std::uint32_t content) {
    const auto entry = open_.find(receive);
    require(entry != open_.end());
    Posted& posted = entry->second;
    require(std::uint64_t{offset} + length <= posted.length);
    if (hostile_) return;
    require(offset == content && posted.seq < sent_[posted.tag].size());
    require(sent_[posted.tag][posted.seq].message == message);
    require(!posted.placed[offset / options_.segment]);
    posted.placed[offset / options_.segment] = true;
  }

  void events() {
    int count = 0;
    while (const auto event = receiver_.poll_event()) {
      require(++count < kEndless);
      if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event->what)) {
        take_staged(unstage->receive);
      } else if (std::holds_alternative<Endpoint::Rebuildable>(event->what)) {
        rebuild();
      } else {
        done(std::get<ReceiveDone>(event->what));
      }
    }
    while (const auto event = sender_.poll_event()) {
      require(++count < kEndless);
      if (std::holds_alternative<SendDone>(event->what)) ++sends_done_;
    }
    require(sends_done_ <= sends_);
  }

  void take_staged(std::uint32_t receive) {
    Receiver& core = receiver_.receiver(from_);
    for (auto part = core.staged(receive, 0); part; part = core.staged(receive, part->number + 1)) {
      require(part->buffer < options_.max_staged);
      require(std::uint64_t{part->buffer_offset} + part->length <= options_.staging_bytes());
      const auto held = staged_[{part->buffer, part->buffer_offset}];
      require(hostile_ || held.second == part->offset);
      put(receive, part->offset, part->length, held.first, held.second);
    }
    core.unstaged(receive);
  }

  void rebuild() {
    while (const auto what = receiver_.receiver(from_).poll_rebuild()) {
      require(what->count > 0 && what->count <= what->block_packets());
      for (const Rebuild::Missing& missing : std::span(what->missing).first(what->count)) {
        const auto held = parity_.at(missing.buffer);
        require(hostile_ || held == std::pair(what->message, what->block * kMaxParity + missing.row));
        const std::uint32_t index = what->index(missing.place);
        const std::uint32_t at = index * what->segment;
        put(what->receive, at, packet_bytes(index, what->bytes, what->segment), what->message, at);
      }
      receiver_.rebuilt(from_, *what, now_);
    }
  }

  void done(const ReceiveDone& what) {
    const auto entry = open_.find(what.receive);
    require(entry != open_.end());
    Posted& posted = entry->second;
    std::uint64_t missing = 0;
    Receiver& core = receiver_.receiver(from_);
    if (!what.truncated) {
      require(what.bytes <= posted.length);
      for (auto range = core.missing(what.receive, 0); range;
           range = core.missing(what.receive, range->offset + range->length)) {
        require(range->length > 0 && std::uint64_t{range->offset} + range->length <= what.bytes);
        missing += range->length;
        for (std::uint32_t at = range->offset; at < range->offset + range->length && !hostile_;
             at += options_.segment) {
          require(!posted.placed[at / options_.segment]);
          posted.placed[at / options_.segment] = true;
        }
      }
      require(missing == what.missing);
    }
    if (!hostile_) {
      const Sent& sent = sent_[posted.tag].at(posted.seq);
      require(what.bytes == sent.bytes && what.truncated == (sent.bytes > posted.length));
      require(missing == 0 || sent.tolerant);
      require(core.opened(what.receive).identity == sent.identity);
      require(core.tolerates(what.receive) == (sent.tolerant && sent.bytes > 0));
      for (std::uint32_t i = 0; i < packet_count(what.bytes, options_.segment) && !what.truncated; ++i) {
        require(what.bytes == 0 || posted.placed[i]);
      }
    }
    const LossCounters& lost = receiver_.ledgers().totals();
    require(lost.missing_bytes * 10 <= lost.eligible_bytes || hostile_);
    open_.erase(entry);
    ++received_;
    receiver_.release(from_, what.receive);
  }

  void pass(Duration time) {
    now_ += time;
    sender_.on_timeout(now_);
    receiver_.on_timeout(now_);
    events();
  }

  void wait() {
    const TimePoint next = std::min(sender_.next_timeout(), receiver_.next_timeout());
    if (next == TimePoint::max()) return;
    pass(std::max<Duration>(next - now_, std::chrono::microseconds(20)));
  }

  void drain(int most, bool both) {
    for (int i = 0; i < most; ++i) {
      auto out = sender_.poll_transmit(now_);
      if (!out) break;
      require(i + 1 < kEndless);
      emit(forth_, out->transmit);
    }
    for (int i = 0; both && i < most; ++i) {
      auto out = receiver_.poll_transmit(now_);
      if (!out) break;
      require(i + 1 < kEndless);
      emit(back_, out->transmit);
    }
    events();
  }
  static void emit(std::vector<Wire>& queue, const Transmit& transmit) {
    std::array<std::byte, kMaxHeader> bytes{};
    const std::size_t length = serialize(transmit.header, bytes);
    if (queue.size() >= 4000) return;  // lost
    queue.push_back({{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}, transmit.length});
  }

  // A peer that knows the secret may say anything.
  void hostile(Input& input, bool forge) {
    hostile_ = true;
    Wire packet;
    const bool forth = input.byte() % 2 == 0;
    std::vector<Wire>& queue = forth ? forth_ : back_;
    if (forge || queue.empty()) {
      constexpr std::size_t kFullState = State::kFixed + State::kWindow / 8;
      constexpr std::array<std::size_t, 8> kLengths = {DataHeader::kSize,  kMaxHeader, 24,          44, 84,
                                                       mlt::Posted::kSize, kFullState, Probe::kSize};
      packet.header.resize(kLengths[input.byte() % kLengths.size()]);
      for (std::byte& byte : packet.header) byte = static_cast<std::byte>(input.byte());
      packet.header[0] = std::byte{kWireVersion};
      for (std::size_t i = 0; i < 8; ++i) packet.header[4 + i] = static_cast<std::byte>(kSecret >> (56 - 8 * i));
    } else {
      packet = queue[input.byte() % queue.size()];
      for (std::uint32_t n = input.byte() % 4 + 1; n > 0; --n) {
        const std::size_t at = 12 + input.byte() % (packet.header.size() - 12);
        packet.header[at] = static_cast<std::byte>(input.byte());
      }
    }
    const auto parsed = parse(packet.header);
    if (parsed && std::holds_alternative<DataHeader>(*parsed)) {
      const auto& data = std::get<DataHeader>(*parsed);
      packet.payload = payload_bytes(data);
    }
    arrive(packet, forth);
  }

  Options options_;
  TimePoint now_{std::chrono::seconds(1)};
  Endpoint sender_;
  Endpoint receiver_;
  Endpoint::ConnectionId to_ = 0;
  Endpoint::ConnectionId from_ = 0;
  std::vector<Wire> forth_;
  std::vector<Wire> back_;
  std::array<std::vector<Sent>, kTags> sent_;
  std::array<std::uint32_t, kTags> posted_{};
  std::map<std::uint32_t, Posted> open_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>> staged_;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> parity_;  // by buffer: message, index
  std::uint64_t sends_ = 0;
  std::uint64_t sends_done_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t ahead_ = 0;  // receives whose messages are not sent yet
  bool hostile_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Pair pair(options_from(input));
  for (int steps = 0; !input.empty() && steps < 2000; ++steps) pair.step(input);
  pair.settle();
  return 0;
}
