// `clustar fabric up` and `set`: the switches' rules. `status --watch`.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/cli/fabric_command.h"
#include "bench/cli/options.h"
#include "bench/fabric/fabric.h"
#include "bench/fabric/places.h"
#include "bench/fabric/render.h"
#include "bench/fabric/running.h"
#include "bench/fabric/switch/rules_text.h"

namespace clustar::bench::cli {
namespace {

// CLI11 itself takes -1 for the largest one. "" when it is a seed.
std::string seed_problem(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seed);
  if (error == std::errc() && rest == end) return "";
  return fmt::format("'{}' is no seed; allowed: 0 to {}", text, std::numeric_limits<std::uint64_t>::max());
}

// Waits; true when the user asked to end.
bool interrupted_within(const sigset_t& signals, double seconds) {
  timespec time{};
  time.tv_sec = static_cast<std::time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

// Over what is on the terminal, from the top: what the page before left of a line or below it is wiped. No flicker.
std::string page(const std::string& text) {
  std::string out = "\x1b[H";
  for (const char c : text) out += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
  return out + "\x1b[J";
}

}  // namespace

void add_rule_options(CLI::App& command, fabric::RuleTexts& options) {
  const auto text = [&](const char* name, std::optional<std::string>& into, const char* type, const char* what) {
    command.add_option(name, into, what)->type_name(type)->group("Rules of the switch");
  };
  text("--loss", options.loss, "P", "Lose each packet with this probability, as 1%");
  text("--loss-model", options.loss_model, "MODEL",
       "Gilbert-Elliott, ge:P,R,G,B: chances per packet to become bad and good, losses while good and bad");
  text("--bursts", options.bursts, "BURSTS",
       "every=400ms,length=5ms-50ms,loss=60%-90%: losses in bursts; ranges are drawn separately for each; "
       "jitter=TIME: each begins up to so much later");
  text("--dead", options.dead, "on|off", "Lose everything");
  command
      .add_option("--direction", options.direction,
                  "Which packets the four options above apply to: to (out of the port), from (into it), both")
      ->check(CLI::IsMember({"to", "out", "from", "in", "both"}))
      ->capture_default_str()
      ->group("Rules of the switch");
  command
      .add_option("--ecn", options.marking,
                  "[CLASSES=]KMIN:KMAX:PMAX: mark by the class's depth, as 65000:65000:1 or 3=30k:90k:10%")
      ->type_name("MARKING")
      ->group("Rules of the switch");
  command
      .add_option("--drop-above", options.drop_above,
                  "CLASSES=BYTES: drop these classes while more waits at the port, as 1=20k")
      ->type_name("RULE")
      ->group("Rules of the switch");
  text("--trim", options.trim, "CLASSES", "Cut what the buffer cannot hold to its headers, as 1 or 0-6");
  command.add_option("--seed", options.seed, "Seed of losses and marks")
      ->check(CLI::Validator(seed_problem, "0 to 18446744073709551615"))
      ->type_name("N")
      ->group("Rules of the switch");
}

Result<void> apply_options(const fabric::RuleTexts& texts, fabric::PortRules& rules) {
  const auto done = fabric::apply(texts, rules);
  return done ? done : fail(done.error().code, "--" + done.error().message);
}

namespace {

// Lines of JSON, to a file or to standard output.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path) : path_(path) {
    if (!path.empty() && path != "-") file_.open(path);
  }
  // False when it could not be written; errno says why.
  bool write(const nlohmann::json& object) {
    if (path_.empty()) return true;
    std::ostream& out = path_ == "-" ? std::cout : file_;
    return static_cast<bool>(out << object.dump() << std::endl);
  }

 private:
  std::string path_;
  std::ofstream file_;
};

// Until the output ends or Ctrl-C.
int watch(const std::string& name, double seconds, const std::string& json_path, const sigset_t& signals) {
  JsonLines lines(json_path);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto there = fabric::Fabric::status_of(name);
    if (!there) return fabric_error(there.error());
    nlohmann::json object = status_json(*there, std::nullopt);
    object["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!lines.write(object)) {
      if (json_path == "-") return kOk;  // the reader has seen enough
      return fabric_error({ErrorCode::kSystem, fmt::format("cannot write '{}': {}", json_path, std::strerror(errno))});
    }
    if (json_path == "-") continue;
    const std::string text = status_text(*there, std::nullopt);
    std::cout << (terminal ? page(text) : text + "\n") << std::flush;
  } while (std::cout && !interrupted_within(signals, seconds));
  return kOk;
}

}  // namespace

int watch_fabric(const std::string& name, double seconds, const std::string& json_path) {
  sigset_t signals{}, before{};
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, &before);
  std::cerr << "Ctrl-C ends this\n";
  const int status = watch(name, seconds, json_path, signals);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

namespace {

int set(const FabricArguments& arguments) {
  int status = kOk;
  if (cannot_write(arguments.json_path, status)) return status;
  if (!arguments.rules.any() && !arguments.clear && !arguments.reset) {
    return fabric_usage_error(
        "set: say what; allowed: --clear, --reset-counters, and the rules of clustar fabric up --help");
  }
  const std::string& name = arguments.spec.name;
  if (arguments.rules.any() || arguments.clear) {
    const auto changed = fabric::change_rules(name, arguments.place, [&](fabric::PortRules& rules) {
      if (arguments.clear) rules = {};
      return apply_options(arguments.rules, rules);
    });
    if (!changed) return fabric_error(changed.error());
  }
  if (arguments.reset) {
    if (const auto done = fabric::reset_counters(name); !done) return fabric_error(done.error());
  }
  const auto there = fabric::Fabric::status_of(name);
  if (!there) return fabric_error(there.error());
  std::string text = fmt::format("fabric {}: {}\n", name, fabric::describe(there->spec));
  for (const fabric::SwitchPort& port : fabric::switch_ports(fabric::topology_of(there->spec))) {
    const std::string place = fabric::port_place(port);
    const std::string rules = describe(there->spec.rules.of(place));
    text += fmt::format("{}: {}\n", place, rules.empty() ? "no rules" : rules);
  }
  return show_fabric(arguments, text, fabric::status_json(*there, std::nullopt));
}

}  // namespace

void add_fabric_set(CLI::App& app, const std::shared_ptr<FabricArguments>& arguments, int& status) {
  CLI::App& command = add_fabric_command(
      app, "set", "Change the switches' rules while packets pass; what is not named stays", *arguments);
  command.add_option(
      "WHERE", arguments->place,
      "Only ports at this place: a host (h0), a switch (spine1), a link (leaf0-spine1), one of its ports "
      "(leaf0:spine1) [every port]");
  add_rule_options(command, arguments->rules);
  command.add_flag("--clear", arguments->clear, "First take every rule away");
  command.add_flag("--reset-counters", arguments->reset, "Count from 0 again, at all ports");
  add_fabric_json(command, *arguments);
  command.footer(
      "Example: clustar fabric set h0 --loss 1% --direction both; clustar fabric set leaf0-spine1 --loss 5%;\n"
      "         clustar fabric set --clear");
  command.callback([arguments, &status] { status = set(*arguments); });
}

}  // namespace clustar::bench::cli
