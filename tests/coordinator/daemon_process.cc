#include "tests/coordinator/daemon_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace clustar::tests {
namespace {

using Clock = std::chrono::steady_clock;

int left_ms(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

std::uint16_t port_of(const nlohmann::json& address) {
  if (!address.is_string()) return 0;
  const std::string text = address;
  return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
}

}  // namespace

DaemonProcess::DaemonProcess(const Words& options) {
  Words words{COORDINATOR};
#ifdef COORDINATOR_IS_A_COMMAND
  words.emplace_back("coordinator");
#endif
  const Words usual{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--interval", "50ms"};
  for (std::size_t i = 0; i < usual.size(); i += 2) {
    if (std::find(options.begin(), options.end(), usual[i]) != options.end()) continue;
    words.insert(words.end(), {usual[i], usual[i + 1]});
  }
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int out[2], error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error[1], STDERR_FILENO);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(error[1]);
  out_ = out[0];
  error_ = error[0];
  fcntl(error_, F_SETFL, O_NONBLOCK);
  read_ports();
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0 && !ended_) {
    signal(SIGKILL);
    wait();
  }
  close(out_);
  close(error_);
}

void DaemonProcess::read_ports() {
  const auto end = Clock::now() + kPatience;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    pollfd ready{out_, POLLIN, 0};
    if (poll(&ready, 1, left_ms(end)) <= 0) return;
    std::array<char, 512> bytes;
    const ssize_t got = read(out_, bytes.data(), bytes.size());
    if (got <= 0) return;
    line.append(bytes.data(), static_cast<std::size_t>(got));
  }
  const auto ports = nlohmann::json::parse(line, nullptr, false);
  if (!ports.is_object()) return;
  port_ = port_of(ports["listen"]);
  http_port_ = port_of(ports["http"]);
}

void DaemonProcess::signal(int number) const {
  if (pid_ > 0 && !ended_) kill(pid_, number);
}

int DaemonProcess::wait(std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < end) {
    read_log();  // so that it does not wait for room
    usleep(2000);
  }
  if (got != pid_) return -1000;
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void DaemonProcess::read_log() {
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = read(error_, bytes.data(), bytes.size())) > 0;) {
    log_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

std::string DaemonProcess::log() {
  read_log();
  return log_;
}

nlohmann::json DaemonProcess::state() const {
  const HttpAnswer answer = http_get(http_port_, "/state.json");
  return answer.status == 200 ? nlohmann::json::parse(answer.body, nullptr, false) : nlohmann::json();
}

std::size_t DaemonProcess::descriptors() const {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator one("/proc/" + std::to_string(pid_) + "/fd", error), end; one != end;
       one.increment(error)) {
    ++count;
  }
  return count;
}

int connect_to(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += static_cast<std::size_t>(sent);
  }
  return true;
}

std::string read_to_end(int fd, bool& closed, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::string all;
  closed = false;
  while (true) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, left_ms(end)) <= 0) return all;
    std::array<char, 16384> bytes;
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    closed = got <= 0;
    if (closed) return all;
    all.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

HttpAnswer http_raw(std::uint16_t port, const std::string& request) {
  HttpAnswer answer;
  const int fd = connect_to(port);
  if (fd < 0) return answer;
  write_all(fd, request);
  bool closed = false;
  const std::string all = read_to_end(fd, closed);
  close(fd);
  const std::size_t end = all.find("\r\n\r\n");
  if (!all.starts_with("HTTP/1.1 ") || end == std::string::npos) return answer;
  answer.status = std::stoi(all.substr(9, 3));
  answer.head = all.substr(0, end);
  answer.body = all.substr(end + 4);
  return answer;
}

HttpAnswer http_get(std::uint16_t port, const std::string& path, const std::string& host) {
  return http_raw(port, "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
}

}  // namespace clustar::tests
