#include "tests/rdma/link.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace clustar::tests {
namespace {

bool port_active(const std::string& device) {
  std::ifstream in("/sys/class/infiniband/" + device + "/ports/1/state");
  std::string number;
  std::string state;
  return in >> number >> state && state == "ACTIVE";
}

}  // namespace

std::string why_no_devices() {
  for (const char* device : {"rxe_a", "rxe_b"}) {
    if (!port_active(device)) {
      return std::string("no RDMA device ") + device + " here: run this test by scripts/softroce-vm -- PROGRAM";
    }
  }
  return {};
}

std::string output_of(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen: " + command);
  std::string text;
  std::array<char, 4096> chunk;
  while (const std::size_t got = fread(chunk.data(), 1, chunk.size(), pipe)) text.append(chunk.data(), got);
  if (pclose(pipe) != 0) throw std::runtime_error(command + ": " + text);
  return text;
}

Netem::Netem(const std::string& what) {
  for (const char* end : {"va", "vb"}) output_of(std::string("tc qdisc replace dev ") + end + " root netem " + what);
}

Netem::~Netem() {
  for (const char* end : {"va", "vb"}) output_of(std::string("tc qdisc del dev ") + end + " root");
}

LinkDown::LinkDown() { output_of("ip link set vb down"); }

LinkDown::~LinkDown() {
  output_of("ip link set vb up");
  for (int tries = 0; tries < 500 && !why_no_devices().empty(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace clustar::tests
