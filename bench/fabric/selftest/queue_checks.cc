// What a queue does that stands still: marking, drops, trimming, order, size. Packet i of a burst that is sent at once
// meets i - 1 others; what the slow line carried meanwhile is bounded by the time from the first one's sending to the
// witness that all have met the switch, so that a busy machine widens the interval and never falsifies it.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>

#include "bench/fabric/ports.h"
#include "bench/fabric/selftest/lab.h"

namespace clustar::bench::fabric::selftest {
namespace {

constexpr int kTries = 4;         // for a burst that came in so quickly that it says something
constexpr double kWidest = 0.05;  // of the buffer: what the line may have carried meanwhile

std::uint64_t part(const Range& range, double share) {
  return static_cast<std::uint64_t>(share * static_cast<double>(range.buffer_bytes()));
}

int fitting(std::uint64_t bytes, std::uint64_t frame) { return static_cast<int>(bytes / frame); }

// About 1/n of the buffer, so that thresholds are met exactly to a few parts of it.
std::uint64_t frame_of(const Range& range, std::uint64_t n) {
  return std::clamp<std::uint64_t>(range.buffer_bytes() / n, 100, range.full_frame());
}

struct Burst {
  double carried = 0;           // bytes that the line can have taken until all had met the switch
  std::int64_t settled_ns = 0;  // when that was
  std::string too_slow;         // why nothing follows from it; "" when something does
};

// Begins the experiment and sends the burst, again while the machine is too slow for it.
template <class Send>
Result<Burst> quickly(Lab& lab, Range& range, const std::string& check, const PortRules& rules, const Send& send) {
  const Pinned pinned;
  const auto buffer = static_cast<double>(range.buffer_bytes());
  Burst burst;
  for (int i = 0; i < kTries; ++i) {
    if (const auto ok = lab.begin(range, check, rules); !ok) return tl::unexpected(ok.error());
    if (const auto ok = send(); !ok) return tl::unexpected(ok.error());
    lab.burst_sent(check);
    const auto settled = range.settle();
    if (!settled) return tl::unexpected(settled.error());
    burst = {range.carried(*settled), *settled, ""};
    if (const auto ok = range.collect(); !ok) return tl::unexpected(ok.error());
    if (const auto ok = lab.compare(range, check); !ok) return tl::unexpected(ok.error());
    if (burst.carried <= kWidest * buffer) return burst;
  }
  burst.too_slow = fmt::format(
      "the machine was busy: the burst came in so slowly that the line may have taken {:.0f} % of the buffer meanwhile "
      "(more than {:.0f} % says nothing about a queue)",
      100 * burst.carried / buffer, 100 * kWidest);
  return burst;
}

// A burst that was too slow proves neither that the switch is right nor that it is wrong.
void judge(Lab& lab, const Burst& burst, const Check& row) {
  if (burst.too_slow.empty()) return lab.judge(row);
  lab.skip(row.name, row.what, burst.too_slow);
}

Result<void> check_buffer(Lab& lab, Range& range) {
  const std::uint64_t frame = range.full_frame();
  const int count = fitting(2 * range.buffer_bytes(), frame) + 10;
  const auto burst = quickly(lab, range, "buffer", {}, [&] { return range.send(tos_of(0), frame, count); });
  if (!burst) return tl::unexpected(burst.error());
  // Without the switch program HTB's bucket comes on top of the bfifo.
  const double bucket = range.has_program() ? 0 : static_cast<double>(range.bucket_bytes() + frame);
  const double buffer = static_cast<double>(range.buffer_bytes()), one = static_cast<double>(frame);
  judge(lab, *burst,
        row("buffer", "packets of a burst that it held", std::floor(buffer / one),
            static_cast<double>(range.arrivals().size()),
            {std::floor(buffer / one), std::floor((buffer + burst->carried + bucket) / one) + 1}, "packets"));
  return {};
}

Result<void> check_marking(Lab& lab, Range& range) {
  const std::uint64_t frame = frame_of(range, 200), threshold = part(range, 0.4);
  PortRules rules;
  rules.classes[0] = {threshold, threshold, 1, kNeverDrop, false};
  const int ect = fitting(part(range, 0.7), frame), others = fitting(part(range, 0.1), frame);
  const auto send = [&]() -> Result<void> {
    if (const auto ok = range.send(tos_of(0, kEct0), frame, ect); !ok) return ok;
    if (const auto ok = range.send(tos_of(0), frame, others); !ok) return ok;
    return range.send(tos_of(1, kEct0), frame, others);
  };
  const auto burst = quickly(lab, range, "marking", rules, send);
  if (!burst) return tl::unexpected(burst.error());
  const double one = static_cast<double>(frame), bytes = static_cast<double>(threshold);
  const double first_possible = std::floor(bytes / one) + 1,
               last_possible = std::floor((bytes + burst->carried) / one) + 1;
  double first = 0, unmarked = 0, wrong = 0;  // 0: none was marked
  for (const Arrival& arrival : range.arrivals()) {
    const bool marked = (arrival.tos & 3) == kCe;
    const double at = arrival.sequence + 1.0;
    if (at > ect) {
      wrong += marked ? 1 : 0;
    } else if (marked) {
      first = first == 0 ? at : std::min(first, at);
    } else if (at > last_possible) {
      ++unmarked;
    }
  }
  judge(lab, *burst,
        row("marking", "first packet marked", first_possible, first, {first_possible, last_possible}, "packets"));
  judge(lab, *burst, row("marking", "unmarked above the threshold", 0, unmarked, {0, 0}, "packets"));
  judge(lab, *burst, row("marking", "marked without ECT or of another class", 0, wrong, {0, 0}, "packets"));
  return {};
}

Result<void> check_red(Lab& lab, Range& range) {
  const std::uint64_t frame = frame_of(range, 500), low = part(range, 0.2), high = part(range, 0.8);
  constexpr double kMost = 0.5;
  PortRules rules;
  rules.classes[0] = {low, high, kMost, kNeverDrop, false};
  const int ramp = fitting(high, frame);
  const auto send = [&] { return range.send(tos_of(0, kEct0), frame, ramp); };
  const auto burst = quickly(lab, range, "red", rules, send);
  if (!burst) return tl::unexpected(burst.error());
  const auto chance = [&](double depth) {
    const double at = (depth - static_cast<double>(low)) / static_cast<double>(high - low);
    return kMost * std::clamp(at, 0.0, 1.0);
  };
  std::vector<double> least, most;
  double exact = 0;
  for (int i = 1; i <= ramp; ++i) {
    const double depth = static_cast<double>(frame) * i;
    least.push_back(chance(depth - burst->carried));
    most.push_back(chance(depth));
    exact += most.back();
  }
  const auto marked = std::count_if(range.arrivals().begin(), range.arrivals().end(),
                                    [](const Arrival& one) { return (one.tos & 3) == kCe; });
  judge(lab, *burst,
        row("red", "marks between Kmin and Kmax", exact, static_cast<double>(marked), sum_interval(least, most),
            "packets"));
  return {};
}

Result<void> check_selective(Lab& lab, Range& range) {
  const std::uint64_t frame = frame_of(range, 100);
  PortRules rules;
  rules.classes[1].drop_above_bytes = part(range, 0.25);
  const int few = fitting(part(range, 0.1), frame), half = fitting(part(range, 0.5), frame);
  const auto send = [&]() -> Result<void> {
    if (const auto ok = range.send(tos_of(1), frame, few); !ok) return ok;
    if (const auto ok = range.send(tos_of(2), frame, half); !ok) return ok;
    if (const auto ok = range.send(tos_of(1), frame, half); !ok) return ok;
    return range.send(tos_of(2), frame, few);
  };
  const auto burst = quickly(lab, range, "selective-drop", rules, send);
  if (!burst) return tl::unexpected(burst.error());
  judge(lab, *burst,
        row("selective-drop", "of its class passed, only below", few, static_cast<double>(arrived(range, 1)),
            {static_cast<double>(few), static_cast<double>(few)}, "packets"));
  judge(lab, *burst,
        row("selective-drop", "lost of the other class", 0, static_cast<double>(sent(range, 2) - arrived(range, 2)),
            {0, 0}, "packets"));
  return {};
}

bool is_valid_header(const unsigned char* packet) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(packet[i] << 8 | packet[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

constexpr std::uint64_t kTrimmedFrame = kHeaderBytes + 96;

// Reads packets with their IP headers. How many are trimmed, and how many of all say something wrong of themselves.
std::pair<std::uint64_t, std::uint64_t> read_raw(int fd) {
  std::uint64_t trimmed = 0, wrong = 0;
  unsigned char packet[kMaxMtu + 1];
  for (ssize_t n = 0; (n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT)) > 0;) {
    const bool cut = static_cast<std::uint64_t>(n) + 14 == kTrimmedFrame;
    const bool lengths = n >= 28 && (packet[2] << 8 | packet[3]) == n && (packet[24] << 8 | packet[25]) == n - 20;
    // The cables compute no UDP checksum of whole packets; a trimmed one must not have its sender's.
    const bool good = lengths && is_valid_header(packet) && (!cut || (packet[26] | packet[27]) == 0);
    trimmed += cut ? 1U : 0U;
    wrong += good ? 0U : 1U;
  }
  return {trimmed, wrong};
}

Result<void> check_trimming(Lab& lab, Range& range) {
  PortRules rules;
  rules.classes[1].trim = true;
  const std::uint64_t frame = range.full_frame();
  const int count = fitting(range.buffer_bytes() + part(range, 0.5), frame);
  Fd raw;
  const auto opened = run_inside(range.fabric().namespace_of(0), [&]() -> Result<void> {
    raw = Fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP));
    const int bytes = 64 << 20;
    const bool ok = raw.get() >= 0 && setsockopt(raw.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) == 0;
    return ok ? Result<void>() : clustar::fail(ErrorCode::kSystem, "a raw socket for the probes");
  });
  if (!opened) return opened;
  const auto send = [&] {
    read_raw(raw.get());  // of an earlier try
    return range.send(tos_of(1, kEct0), frame, count);
  };
  const auto burst = quickly(lab, range, "trimming", rules, send);
  if (!burst) return tl::unexpected(burst.error());
  const auto [trimmed, wrong] = read_raw(raw.get());
  std::uint64_t misplaced = 0, short_ones = 0;
  for (const Arrival& one : range.arrivals()) {
    const bool cut = one.frame_bytes == kTrimmedFrame;
    short_ones += cut ? 1U : 0U;
    misplaced += one.tos != (cut ? tos_of(7, kEct0) : tos_of(1, kEct0)) || (!cut && one.frame_bytes != frame) ? 1U : 0U;
  }
  const double held = std::floor(static_cast<double>(range.buffer_bytes()) / static_cast<double>(frame));
  const double most = count - held, least = std::max(0.0, most - burst->carried / static_cast<double>(frame) - 1);
  // Their headers fill the buffer, too, which takes room from whole ones that follow.
  const double room = most * kTrimmedFrame / static_cast<double>(frame) + 1;
  judge(lab, *burst,
        row("trimming", "packets trimmed to headers and 96 B", most, static_cast<double>(short_ones),
            {std::floor(least), std::ceil(most + room)}, "packets"));
  judge(lab, *burst,
        row("trimming", "packets lost", 0, count - static_cast<double>(range.arrivals().size()), {0, 0}, "packets"));
  judge(
      lab, *burst,
      row("trimming", "wrong length, checksum or class", 0, static_cast<double>(wrong + misplaced), {0, 0}, "packets"));
  judge(lab, *burst,
        row("trimming", "seen trimmed by a raw socket", static_cast<double>(short_ones), static_cast<double>(trimmed),
            {static_cast<double>(short_ones), static_cast<double>(short_ones)}, "packets"));
  return {};
}

// Packets of a lower class that arrived while a higher one's, sent before, still waited.
std::uint64_t overtaken(const Range& range, std::int64_t from_ns) {
  std::uint64_t count = 0;
  int highest = -1;
  const auto& all = range.arrivals();
  for (std::size_t i = all.size(); i-- > 0 && all[i].at_ns > from_ns;) {
    count += all[i].tos >> 5 < highest ? 1U : 0U;
    highest = std::max<int>(highest, all[i].tos >> 5);
  }
  return count;
}

Result<void> check_order(Lab& lab, Range& range) {
  const std::uint64_t frame = frame_of(range, 100);
  const int each = fitting(part(range, 0.08), frame), first = fitting(part(range, 0.4), frame);
  constexpr int kAbove = 6;  // classes 1 to 6; 7 is the kernel's own
  const auto send = [&]() -> Result<void> {
    Result<void> done = range.send(tos_of(0), frame, first);
    for (int c = 1; done && c <= kAbove; ++c) done = range.send(tos_of(c), frame, each);
    return done;
  };
  auto burst = quickly(lab, range, "order", {}, send);
  if (!burst) return tl::unexpected(burst.error());
  const auto waited =
      static_cast<std::size_t>(std::count_if(range.arrivals().begin(), range.arrivals().end(),
                                             [&](const Arrival& one) { return one.at_ns > burst->settled_ns; }));
  const std::size_t all = range.sent().size();
  // Each class has a next to no rate of its own, whose bucket lets its first packets out of order.
  const double own = kAbove * (std::floor(kLeafBurstBytes / static_cast<double>(frame)) + 1);
  judge(lab, *burst,
        row("order", "packets lost", 0, static_cast<double>(all - range.arrivals().size()), {0, 0}, "packets"));
  // Where hardly any still waited there was nothing to put in order.
  if (burst->too_slow.empty() && waited < all / 2) {
    burst->too_slow =
        fmt::format("only {} of {} packets still waited when all had come; half of them are needed", waited, all);
  }
  judge(lab, *burst,
        row("order", "packets that a lower class overtook", 0, static_cast<double>(overtaken(range, burst->settled_ns)),
            {0, own}, "packets"));
  return {};
}

}  // namespace

// The buffer last: it takes nothing for granted that the others measure.
std::vector<RangeCheck> slow_checks() {
  return {{"marking", true, check_marking},   {"red", true, check_red},     {"selective-drop", true, check_selective},
          {"trimming", true, check_trimming}, {"order", true, check_order}, {"buffer", false, check_buffer}};
}

}  // namespace clustar::bench::fabric::selftest
