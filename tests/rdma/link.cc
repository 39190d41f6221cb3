#include "tests/rdma/link.h"

#include <gtest/gtest.h>
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

// For destructors, which may run because of another exception.
void undo(const std::string& command) {
  try {
    output_of(command);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
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
  output_of("tc qdisc replace dev va root netem " + what);
  try {
    output_of("tc qdisc replace dev vb root netem " + what);
  } catch (...) {
    undo("tc qdisc del dev va root");
    throw;
  }
}

Netem::~Netem() {
  undo("tc qdisc del dev va root");
  undo("tc qdisc del dev vb root");
}

LinkDown::LinkDown(const std::string& interface) : set_("ip link set " + interface) { output_of(set_ + " down"); }

LinkDown::~LinkDown() {
  undo(set_ + " up");
  for (int tries = 0; tries < 500 && !why_no_devices().empty(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(why_no_devices(), "") << "5 s after its link was set up";
}

}  // namespace clustar::tests
