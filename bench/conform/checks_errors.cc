// errors.*: what must be an error, and what may not happen instead.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>

#include <limits>

#include "bench/conform/runner.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

std::string check_device_range(const Env& env) {
  Session session(env);
  int count = 0;
  session.must(session.net().devices(&count), "devices");
  int described = 0;
  for (const int dev : {-1, count, count + 1000, std::numeric_limits<int>::max()}) {
    note_step(fmt::format("asking for device {} of {}", dev, count));
    note_call("getProperties");
    // NCCL asks for devices that there are, and its Socket transport does not look at the number: no crash is enough.
    proxy::NetProperties props;
    described += session.net().get_properties(dev, &props) == nccl_abi::kSuccess ? 1 : 0;
    proxy::Handle handle{};
    void* comm = nullptr;
    note_call("listen");
    if (session.net().listen(session.ctx(), dev, &handle, &comm) == nccl_abi::kSuccess) {
      fail_check(fmt::format("listen on device {} succeeds, there are {} devices", dev, count));
    }
  }
  Link link = session.link();
  exchange(session, link, 64, 1);
  return fmt::format("listen on -1, n, n + 1000 and INT_MAX is an error; getProperties {}",
                     described == 0 ? "too" : fmt::format("answers for {} of the 4", described));
}

// Waits for the transfer to become an error, as it must within death_bound. Returns how it went.
std::string await_error(Session& session, const std::function<Transfer()>& next) {
  const auto begin = Clock::now();
  std::size_t finished = 0;
  Transfer transfer = next();
  while (Clock::now() - begin < session.env().death_bound) {
    const int result = session.advance(transfer);
    if (result != nccl_abi::kSuccess) {
      return fmt::format("{} after {:.2f} s", result_name(result), seconds_since(begin));
    }
    if (transfer.done) {
      ++finished;
      transfer = next();
    }
    sched_yield();
  }
  fail_check(fmt::format("no error within {:.1f} s after the peer closed; {} transfers were reported done since",
                         seconds_since(begin), finished));
}

std::string check_send_to_closed(const Env& env) {
  signal(SIGPIPE, SIG_DFL);  // as in most programs: a plugin that relies on it being ignored dies here
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, 1 << 20);
  exchange(session, link, 4096, 1);
  link.close_recv();
  note_step("sending on after the receiver closed");
  return await_error(session, [&] { return link.send(from, 0, from.size()); });
}

std::string check_recv_from_closed(const Env& env) {
  Session session(env);
  Link link = session.link();
  exchange(session, link, 4096, 1);
  Region into(session, link.recv_comm, 1 << 20);
  link.close_send();
  note_step("receiving after the sender closed");
  return await_error(session, [&] { return link.recv(into, 0, into.size()); });
}

std::string check_signals(const Env& env) {
  std::vector<std::pair<int, void (*)(int)>> before;
  const auto handler_of = [](int number) {
    struct sigaction action {};
    return sigaction(number, nullptr, &action) == 0 ? action.sa_handler : SIG_ERR;
  };
  for (int number = 1; number < NSIG; ++number) before.emplace_back(number, handler_of(number));
  Session session(env);
  Link link = session.link();
  exchange(session, link, 65536, 1);
  for (const auto& [number, handler] : before) {
    if (handler_of(number) != handler) fail_check(fmt::format("the handler of {} was changed", signal_name(number)));
  }
  return "load, init and a transfer change no signal handler";
}

constexpr Check kChecks[] = {
    {"errors.device_range",
     "listen on a device that does not exist is an error; asking for its properties does not crash.",
     "plugin/net.cc:151, 476; bootstrap.cc:517-544; graph/topo.cc:1310", false, check_device_range},
    {"errors.send_to_closed", "Sending to a peer that closed becomes an error, and raises no SIGPIPE.",
     "transport/net.cc:1322, 1339; proxy.cc:754", false, check_send_to_closed, false, true},
    {"errors.recv_from_closed", "A receive whose sender closed becomes an error; NCCL itself waits forever.",
     "transport/net.cc:1508; proxy.cc:754", false, check_recv_from_closed, false, true},
    {"errors.signals", "The process is the user's: the plugin changes no signal handler.", "plugin/plugin_open.cc:37",
     false, check_signals},
};

}  // namespace

std::span<const Check> error_checks() { return kChecks; }

}  // namespace clustar::bench::conform
