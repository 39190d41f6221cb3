// A coordinator as a process of its own, and what a test asks it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace clustar::tests {

using Words = std::vector<std::string>;
inline constexpr std::chrono::seconds kPatience{20};  // of every wait: far more than it takes

// Starts `clustar coordinator` (in a sanitizer's build the program coordinator_daemon, which has the same options) with
// a port of its own, and a page. The destructor kills what still runs.
class DaemonProcess {
 public:
  // `options` come last, and so go before these: --listen 127.0.0.1:0 --http 127.0.0.1:0 --interval 50ms.
  explicit DaemonProcess(const Words& options = {});
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  bool listens() const { return port_ != 0; }
  std::uint16_t port() const { return port_; }
  std::uint16_t http_port() const { return http_port_; }
  pid_t pid() const { return pid_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void signal(int number) const;
  // Until it ended: exit status, or minus the signal; -1000 when it goes on at the limit.
  int wait(std::chrono::seconds limit = kPatience);
  // What it wrote to standard error; complete once it has ended.
  std::string log();
  // /state.json; null when it is not to be had.
  nlohmann::json state() const;
  // Asks until `holds` is true of the state; the last state.
  template <class Holds>
  nlohmann::json wait_for_state(const Holds& holds) const {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    nlohmann::json now = state();
    while (!(now.is_object() && holds(now)) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      now = state();
    }
    return now;
  }
  std::size_t descriptors() const;  // that it has open

 private:
  void read_ports();
  void read_log();

  pid_t pid_ = -1;
  bool ended_ = false;
  int out_ = -1, error_ = -1;
  std::string log_;
  std::uint16_t port_ = 0, http_port_ = 0;
};

// One answer over HTTP; status 0: none came.
struct HttpAnswer {
  int status = 0;
  std::string head{};
  std::string body{};
};
// A connected socket on loopback, or -1. The caller closes it.
int connect_to(std::uint16_t port);
// Sends the text as it is, and reads until the other side closes.
HttpAnswer http_raw(std::uint16_t port, const std::string& request);
HttpAnswer http_get(std::uint16_t port, const std::string& path, const std::string& host = "127.0.0.1");
// Everything until the other side closes or `limit` is over. `closed` says which.
std::string read_to_end(int fd, bool& closed, std::chrono::milliseconds limit = kPatience);
// All of it, or false.
bool write_all(int fd, const std::string& text);

}  // namespace clustar::tests
