#include "transport/api/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "transport/api/level_classes.h"

namespace clustar {
namespace {

const std::vector<std::string>& names() {
  static const std::vector<std::string> all{"tcp", "mlt", "verbs", "ofi"};
  return all;
}

bool read_dscp(SendOrderSettings& settings, const std::string& text) {
  settings.dscp = text;
  return transport::LevelClasses::parse(text).has_value();
}

// HOST:PORT, with commas: the host is looked up where it is used.
bool read_coordinators(SendOrderSettings& settings, const std::string& text) {
  settings.coordinators.clear();
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, comma);
    const std::size_t colon = one.rfind(':');
    if (colon == 0 || colon == std::string_view::npos) return false;
    const std::string_view port = one.substr(colon + 1);
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number == 0) return false;
    // Of IPv6 only [HOST]:PORT says where the host ends.
    const bool bracketed = one.front() == '[' && one[colon - 1] == ']';
    if (!bracketed && one.substr(0, colon).find_first_of(":[]") != std::string_view::npos) return false;
    settings.coordinators.emplace_back(one);
    if (comma + 1 == rest.size()) return false;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return settings.coordinators.size() <= 4;
}

// As the protocol carries it.
bool read_tenant(SendOrderSettings& settings, const std::string& text) {
  settings.tenant = text;
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool read_require(TransportSettings& settings, const std::string& text) {
  settings.require.clear();
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    settings.require.emplace_back(rest.substr(0, bar));
    if (!setting::one_of(settings.require.back(), names())) return false;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return true;
}

}  // namespace

const TypedTable<TransportSettings>& TransportSettings::table() {
  using S = TransportSettings;
  static const TypedTable<S> all({
      setting::make_choice("transport", &S::transport, {"auto", "tcp", "mlt", "verbs", "ofi"})
          .help(
              "`tcp`, `mlt`, `verbs`, `ofi` ([libfabric.md](libfabric.md)), or the best that works here: `auto` takes "
              "`verbs` where its module and a usable port are there ([verbs.md](verbs.md)), otherwise `tcp`; with "
              "`CLUSTAR_PSK_FILE` it takes `mlt`"),
      Setting<S>{{"require", "one or more of tcp | mlt | verbs | ofi, joined by |", {}, "none", false},
                 read_require,
                 [](const S& settings) { return fmt::format("{}", fmt::join(settings.require, "|")); }}
          .help("transports of which one must be in use, joined by `\\|`; if none is, communicators fail with the "
                "reason"),
      setting::make_seconds("stall_timeout", &S::stall_timeout, 86400)
          .help("seconds after which a silent peer on a live host is an error; 0: never, it is only named in warnings"),
  });
  return all;
}

const TypedTable<SendOrderSettings>& SendOrderSettings::table() {
  using S = SendOrderSettings;
  static const TypedTable<S> all(
      {
          setting::make_choice("send_order", &S::order, {"fifo", "class", "coflow"})
              .help(
                  "order of sending at a NIC: `fifo` by arrival; `class` by the communicator's "
                  "`ncclConfig_t.trafficClass`, the larger first, strictly: a class that is never idle keeps those "
                  "below "
                  "it from sending ([measured](results/send-order-2026-11-23.md)); `coflow` small messages first, then "
                  "by how badly a job waits for them (`CLUSTAR_SEND_URGENCY`), then small coflows first, with a floor "
                  "for all; processes that share the NIC agree on it ([scheduling.md](scheduling.md))"),
          setting::make_number("send_ahead_us", &S::ahead_us, 0, 100'000, " (microseconds of the line; 0: no bound)")
              .help(
                  "with `class` and `coflow`: at most what the line carries in this many microseconds, plus 16 KiB, "
                  "may "
                  "be in the kernel or the NIC, where nothing can overtake it, with `coflow` of a flow that was alone "
                  "for 100 ms what it carries in 200 at least; 0: no bound, and a top message may wait for "
                  "megabytes. On TCP at most 16K then go ahead of their receive, whatever `CLUSTAR_TCP_EAGER_BYTES` "
                  "is"),
          setting::make_number("job", &S::job, 0, std::numeric_limits<int>::max())
              .help("number of the training job that this process belongs to, for orders that tell jobs apart"),
          setting::make_number("job_weight", &S::weight, 1, 1000)
              .help("with `coflow`: the job's part of a line that several jobs share, against theirs"),
          setting::make_number("send_pace", &S::pace, 10, 100, " (percent of the line)")
              .help("with `coflow`, where the line's speed is known: what bulk may fill of it while small messages or "
                    "other processes use it, too. Headers take 5 to 6 percent at an MTU of 1500"),
          setting::make_choice("send_push", &S::push, {"on", "off"})
              .help("with `coflow` on `mlt`, where no coordinator orders: a window grows the faster the more of its "
                    "iteration was sent, so that periodic jobs of other hosts on the same link come to take turns "
                    "([scheduling.md](scheduling.md)); `off`: all alike"),
          setting::make_choice("send_by_size", &S::by_size, {"on", "off"})
              .help("with `coflow`: of bulk that is equally urgent smaller coflows go first; `off`: by arrival"),
          Setting<S>{{"send_dscp", transport::LevelClasses::kAllowed, {}, "none", false},
                     read_dscp,
                     [](const S& settings) { return settings.dscp; }}
              .help(
                  "with `coflow`, on TCP and verbs: the DSCP of each level of the order (0 first, 15 last), so that "
                  "switches keep it, too, as `0-7=48,8=40,9=32,10=24,11-15=8`; acknowledgements have that of level 0. "
                  "On verbs each connection has that of its communicator's urgency, and the service level of its upper "
                  "three "
                  "bits. A communicator's own `trafficClass` goes before it ([scheduling.md](scheduling.md))"),
          Setting<S>{{"coordinator", "HOST:PORT, up to 4 with commas, the primary first", {}, "none", false},
                     read_coordinators,
                     [](const S& settings) { return fmt::format("{}", fmt::join(settings.coordinators, ",")); }}
              .help("with `coflow`: the coordinator, and those that stand by, whose order counts on all hosts "
                    "([coordinator.md](coordinator.md)); while none answers, the host orders alone"),
          setting::make_text("coordinator_key_file", &S::coordinator_key_file, "a file")
              .otherwise("none")
              .help("the key that this process and the coordinator show each other that they know: a file as "
                    "`CLUSTAR_PSK_FILE` ([security.md](security.md))"),
          Setting<S>{{"tenant", "a name, at most 64 printable ASCII characters", {}, {}, false},
                     read_tenant,
                     [](const S& settings) { return settings.tenant; }}
              .otherwise("none")
              .help("whose job this is: the coordinator's `--tenant` gives its weight, `--cap` its limit"),
          setting::make_number("deadline_ms", &S::deadline_ms, 0, 3'600'000, " (milliseconds; 0: none)")
              .help(
                  "within so long each iteration's bytes are to be sent, and coflows that do not repeat: a coordinator "
                  "that can promise it lets this job go before those without, and says if it cannot "
                  "([coordinator.md](coordinator.md))"),
      },
      {.contradiction = [](const S& settings) -> std::string {
        if (settings.deadline_ms > 0 && settings.coordinators.empty()) {
          return "CLUSTAR_DEADLINE_MS is set, and no coordinator to promise it: set CLUSTAR_COORDINATOR, or unset it";
        }
        if (settings.coordinators.empty() || settings.order == "coflow") return {};
        return "CLUSTAR_COORDINATOR is set, and CLUSTAR_SEND_ORDER is " + settings.order +
               ": set CLUSTAR_SEND_ORDER=coflow, or unset CLUSTAR_COORDINATOR";
      }});
  return all;
}

}  // namespace clustar
