// clustar-udp-bench: ways to send and to receive UDP on this kernel, side by side.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/perf/statistics.h"
#include "bench/report/report.h"
#include "bench/udp/receivers.h"
#include "bench/udp/senders.h"
#include "bench/udp/trial.h"

namespace {

using namespace clustar;
using namespace clustar::bench::udp;
using bench::perf::paired_ratio;
using bench::perf::RatioEstimate;
using bench::perf::spread;
using bench::perf::Spread;

constexpr std::string_view kUsage =
    R"(usage: clustar-udp-bench [options]

Sends segments (60 B of header and a payload) over a veth pair and puts each payload at its place in 64 MiB, with each
way to receive (senders: sendmmsg) and each way to send (receiver: copy), by turns. Every byte is compared. Needs root.

  --mtu N[,N]          1280 to 65535 (default 1500,9000)
  --carriage C[,C]     whole, rejoined, packets (default all): one piece of up to 64 KB from socket to socket; cut by the
                       sender's veth and joined by the receiver's; cut and never joined
  --receivers R[,R]    copy, copy-one, copy-stream, scatter, scatter-batch, scatter-peek, uring-copy, uring-scatter,
                       nowhere (default all); the first one is what the others are compared with
  --senders S[,S]      sendmmsg, uring, zerocopy (default all); likewise
  --rounds N           of every arm, 1 to 1000 (default 7)
  --mib N              moved by each trial, 1 to 65536 (default 512)
  --window-kib N       sent and not yet credited, 64 to 65536 (default 256, which a veth's queue of 256 packets holds)
  --swap-every N       of every N bursts the first two change places, so that predictions fail; 0: never (default)
  --read-mib N         the receiver reads each N MiB once they have come, as a CPU that reduces does, 1 to 32; 0: never
                       (default), as where a GPU fetches them
  --threads T          pinned: sender on core 0, receiver on core 1 (default); two: where the scheduler puts them; one:
                       both ends by turns on one thread, a window each, which shows CPU time best
  --json FILE          results as JSON too; - is standard output, instead of the tables
  --help               this text

example: clustar-udp-bench --mtu 1500 --carriage whole --receivers copy,scatter --senders sendmmsg
exit status: 0 all ran and every byte was right; 1 not so; 2 wrong usage
)";
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Command {
  std::vector<std::uint64_t> mtus{1500, 9000};
  std::vector<Carriage> carriages{Carriage::kWhole, Carriage::kRejoined, Carriage::kPackets};
  std::vector<std::string> receivers = receiver_names();
  std::vector<std::string> senders = sender_names();
  std::uint64_t rounds = 7;
  std::uint64_t mib = 512;
  std::uint64_t window_kib = 256;
  std::uint64_t swap_every = 0;
  std::uint64_t read_mib = 0;
  Threads threads = Threads::kTwoPinned;
  std::string json;
};

struct Measured {
  Arm arm;
  std::string refused;  // why it cannot run here
  std::vector<Figures> rounds;
};

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  while (true) {
    const std::size_t comma = text.find(',');
    found.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return found;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t low, std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
  return value;
}

bool names(std::string_view text, const std::vector<std::string>& known, std::vector<std::string>& chosen) {
  chosen = words(text);
  return std::ranges::all_of(chosen, [&](const auto& one) { return std::ranges::find(known, one) != known.end(); });
}

bool carriages(std::string_view text, std::vector<Carriage>& chosen) {
  chosen.clear();
  for (const std::string& word : words(text)) {
    const std::size_t before = chosen.size();
    for (const Carriage one : {Carriage::kWhole, Carriage::kRejoined, Carriage::kPackets}) {
      if (word == to_string(one)) chosen.push_back(one);
    }
    if (chosen.size() == before) return false;
  }
  return true;
}

bool mtus(std::string_view text, std::vector<std::uint64_t>& chosen) {
  chosen.clear();
  for (const std::string& word : words(text)) {
    const auto mtu = number(word, 1280, 65535);
    if (!mtu) return false;
    chosen.push_back(*mtu);
  }
  return true;
}

// False: `value` is not allowed, or there is no such option.
bool set(Command& command, std::string_view option, std::string_view value) {
  const auto into = [&](std::uint64_t& target, std::uint64_t low, std::uint64_t high) {
    const auto parsed = number(value, low, high);
    if (parsed) target = *parsed;
    return parsed.has_value();
  };
  if (option == "--mtu") return mtus(value, command.mtus);
  if (option == "--carriage") return carriages(value, command.carriages);
  if (option == "--receivers") return names(value, receiver_names(), command.receivers);
  if (option == "--senders") return names(value, sender_names(), command.senders);
  if (option == "--rounds") return into(command.rounds, 1, 1000);
  if (option == "--mib") return into(command.mib, 1, 65536);
  if (option == "--window-kib") return into(command.window_kib, 64, 65536);
  if (option == "--swap-every") return into(command.swap_every, 0, 1'000'000) && command.swap_every != 1;
  if (option == "--read-mib") return into(command.read_mib, 0, 32);
  if (option == "--threads") {
    command.threads = value == "one" ? Threads::kOne : value == "two" ? Threads::kTwo : Threads::kTwoPinned;
    return value == "one" || value == "two" || value == "pinned";
  }
  if (option != "--json" || value.empty()) return false;
  command.json = value;
  return true;
}

std::vector<Measured> arms_of(const Command& command) {
  std::vector<Measured> arms;
  for (const std::string& receiver : command.receivers) arms.push_back({{command.senders[0], receiver}, "", {}});
  for (std::size_t i = 1; i < command.senders.size(); ++i) {
    arms.push_back({{command.senders[i], command.receivers[0]}, "", {}});
  }
  return arms;
}

Shape shape_of(const Command& command, std::uint64_t mtu) {
  Shape shape;
  shape.payload_bytes = (mtu - 28 - kHeaderBytes) / 64 * 64;
  shape.segments = (command.mib << 20) / shape.payload_bytes + 1;
  shape.window_segments = (command.window_kib << 10) / shape.datagram_bytes();
  shape.swap_every = command.swap_every;
  shape.read_every = (command.read_mib << 20) / shape.payload_bytes;
  return shape;
}

template <class Value>
std::vector<double> values(const Measured& measured, const Shape& shape, Value value) {
  const double gbit = static_cast<double>(shape.segments * shape.payload_bytes) * 8e-9;
  std::vector<double> all;
  for (const Figures& one : measured.rounds) all.push_back(value(one, gbit));
  return all;
}

struct Summary {
  Spread gbps, sender_ms, receiver_ms, machine_ms;  // CPU ms per Gbit of payload
  double sender_calls = 0, receiver_calls = 0;      // per MiB
  RatioEstimate rate, cpu;                          // of the first arm; cpu: both threads
  std::uint64_t lost = 0, wrong = 0, stalls = 0;
  ScatterCounts scatter;
};

double rate_of(const Figures& one, double gbit) { return gbit / std::max(one.seconds, 1e-9); }
double cpu_of(const Figures& one, double gbit) { return (one.sender.cpu_s + one.receiver.cpu_s) * 1e3 / gbit; }

Summary summarize(const Measured& measured, const Measured& first, const Shape& shape) {
  const auto of = [&](const Measured& one, auto value) { return values(one, shape, value); };
  Summary sum;
  sum.gbps = spread(of(measured, rate_of));
  sum.sender_ms = spread(of(measured, [](const Figures& f, double gbit) { return f.sender.cpu_s * 1e3 / gbit; }));
  sum.receiver_ms = spread(of(measured, [](const Figures& f, double gbit) { return f.receiver.cpu_s * 1e3 / gbit; }));
  sum.machine_ms = spread(of(measured, [](const Figures& f, double gbit) { return f.machine_cpu_s * 1e3 / gbit; }));
  const double mib = static_cast<double>(shape.segments * shape.payload_bytes) / (1 << 20);
  sum.sender_calls = static_cast<double>(measured.rounds.back().sender.calls) / mib;
  sum.receiver_calls = static_cast<double>(measured.rounds.back().receiver.calls) / mib;
  if (measured.rounds.size() == first.rounds.size()) {
    sum.rate = paired_ratio(of(measured, rate_of), of(first, rate_of), 1);
    sum.cpu = paired_ratio(of(measured, cpu_of), of(first, cpu_of), 1);
  }
  for (const Figures& one : measured.rounds) {
    sum.lost += one.lost;
    sum.wrong += one.wrong;
    sum.stalls += one.stalls;
    sum.scatter.placed += one.scatter.placed;
    sum.scatter.moved += one.scatter.moved;
    sum.scatter.copied += one.scatter.copied;
  }
  return sum;
}

std::string text_of(const Spread& one) { return fmt::format("{:.2f} ({:.2f}..{:.2f})", one.median, one.min, one.max); }
std::string text_of(const RatioEstimate& one) {
  return fmt::format("{:.2f} ({:.2f}..{:.2f})", one.ratio, one.low, one.high);
}

nlohmann::json json_of(const Spread& one) { return {{"median", one.median}, {"min", one.min}, {"max", one.max}}; }
nlohmann::json json_of(const RatioEstimate& one) {
  return {{"ratio", one.ratio}, {"low", one.low}, {"high", one.high}};
}

nlohmann::json json_of(const Measured& measured, const Summary& sum) {
  return {{"sender", measured.arm.sender},
          {"receiver", measured.arm.receiver},
          {"goodput_gbps", json_of(sum.gbps)},
          {"sender_cpu_ms_per_gbit", json_of(sum.sender_ms)},
          {"receiver_cpu_ms_per_gbit", json_of(sum.receiver_ms)},
          {"machine_cpu_ms_per_gbit", json_of(sum.machine_ms)},
          {"sender_calls_per_mib", sum.sender_calls},
          {"receiver_calls_per_mib", sum.receiver_calls},
          {"rate_ratio", json_of(sum.rate)},
          {"cpu_ratio", json_of(sum.cpu)},
          {"lost", sum.lost},
          {"wrong", sum.wrong},
          {"stalls", sum.stalls},
          {"zerocopy_copied_messages", measured.rounds.back().copied},
          {"segments", {{"placed", sum.scatter.placed}, {"moved", sum.scatter.moved}, {"copied", sum.scatter.copied}}}};
}

void print(const std::vector<Measured>& arms, const Shape& shape) {
  fmt::print(
      "| sender > receiver | Gbit/s | CPU ms/Gbit: sender | receiver | machine | calls/MiB s, r | rate | CPU | lost "
      "|\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  for (const Measured& one : arms) {
    const std::string name = one.arm.sender + " > " + one.arm.receiver;
    if (!one.refused.empty()) {
      fmt::print("| {} | {} |\n", name, one.refused);
      continue;
    }
    const Summary sum = summarize(one, arms[0], shape);
    fmt::print("| {} | {} | {} | {} | {:.2f} | {:.1f}, {:.1f} | {} | {} | {} |{}\n", name, text_of(sum.gbps),
               text_of(sum.sender_ms), text_of(sum.receiver_ms), sum.machine_ms.median, sum.sender_calls,
               sum.receiver_calls, text_of(sum.rate), text_of(sum.cpu), sum.lost,
               sum.wrong > 0 ? fmt::format(" {} WRONG", sum.wrong) : "");
  }
  fmt::print("\n");
  std::fflush(stdout);
}

// A kernel that cannot do one arm leaves the others in.
void run_rounds(const Wire& wire, Memory& memory, const Shape& shape, const Command& command,
                std::vector<Measured>& arms) {
  for (std::uint64_t round = 0; round < command.rounds; ++round) {
    for (Measured& one : arms) {
      if (!one.refused.empty()) continue;
      auto figures = run_trial(wire, memory, shape, one.arm, command.threads);
      if (figures) {
        one.rounds.push_back(*figures);
      } else {
        one.refused = figures.error().message;
      }
    }
  }
}

int run(const Command& command) {
  Memory memory;
  nlohmann::json results = nlohmann::json::array();
  int status = 0;
  for (const std::uint64_t mtu : command.mtus) {
    for (const Carriage carriage : command.carriages) {
      const auto wire = Wire::make(static_cast<int>(mtu), carriage);
      if (!wire) {
        std::fprintf(stderr, "clustar-udp-bench: %s\n", wire.error().message.c_str());
        return kFailed;
      }
      const Shape shape = shape_of(command, mtu);
      std::vector<Measured> arms = arms_of(command);
      run_rounds(*wire, memory, shape, command, arms);
      nlohmann::json found = nlohmann::json::array();
      for (const Measured& one : arms) {
        if (!one.refused.empty()) {
          found.push_back({{"sender", one.arm.sender}, {"receiver", one.arm.receiver}, {"refused", one.refused}});
          status = kFailed;
          continue;
        }
        const Summary sum = summarize(one, arms[0], shape);
        if (sum.wrong > 0) status = kFailed;
        found.push_back(json_of(one, sum));
      }
      results.push_back(
          {{"mtu", mtu}, {"carriage", to_string(carriage)}, {"payload_bytes", shape.payload_bytes}, {"arms", found}});
      if (command.json == "-") continue;
      fmt::print("MTU {}, {}, payload {} B\n\n", mtu, to_string(carriage), shape.payload_bytes);
      print(arms, shape);
    }
  }
  if (command.json.empty()) return status;
  const auto written = bench::report::write_json(bench::report::envelope("udp-bench", results), command.json);
  if (!written) std::fprintf(stderr, "clustar-udp-bench: %s\n", written.error().message.c_str());
  return written ? status : kFailed;
}

}  // namespace

int main(int count, char** arguments) {
  Command command;
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "--help") {
      fmt::print("{}", kUsage);
      return 0;
    }
    const std::string_view value = i + 1 < count ? arguments[++i] : "";
    if (!set(command, option, value)) {
      fmt::print(stderr, "clustar-udp-bench: {} {} is not allowed; see clustar-udp-bench --help\n", option, value);
      return kWrongUsage;
    }
  }
  if (const auto writable = bench::report::check_writable(command.json); !writable) {
    std::fprintf(stderr, "clustar-udp-bench: %s\n", writable.error().message.c_str());
    return kFailed;
  }
  return run(command);
}
