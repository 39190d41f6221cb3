// What a program may ask of an endpoint and of the provider before anything is sent.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/libfabric_provider/program.h"

namespace clustar::libfabric_shim::provider {
namespace {

int get_info(fi_info* hints, fi_info** info) {
  setenv("FI_PROVIDER_PATH", PROVIDER_FOLDER, 1);
  hints->fabric_attr->prov_name = strdup("clustar");
  const int code = fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, info);
  fi_freeinfo(hints);
  return code;
}

TEST(FiEndpoint, HasThePortThatItWasGiven) {
  sockaddr_in taken{};
  {
    const Program any(false);
    taken = any.address();
    ASSERT_NE(taken.sin_port, 0);
  }
  const Program again(false, std::to_string(ntohs(taken.sin_port)).c_str());
  EXPECT_EQ(again.address().sin_port, taken.sin_port);
}

// What it may do with messages is what was asked for; what a domain may do is said of neither side.
TEST(FiEndpoint, HasTheCapabilitiesThatWereAskedFor) {
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_SEND;
  fi_info* info = nullptr;
  ASSERT_EQ(get_info(hints, &info), 0);
  EXPECT_EQ(info->caps & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_DIRECTED_RECV), FI_MSG | FI_SEND);
  EXPECT_EQ(info->tx_attr->caps, FI_MSG | FI_SEND);
  EXPECT_EQ(info->rx_attr->caps & ~(FI_MSG | FI_SOURCE), 0u);
  fi_freeinfo(info);
  hints = fi_allocinfo();
  hints->domain_attr->caps = FI_SHARED_AV;
  EXPECT_EQ(get_info(hints, &info), -FI_ENODATA);
}

TEST(FiEndpoint, ASignalEndsAWait) {
  const Program program(false);
  ASSERT_EQ(fi_cq_signal(program.receives()), 0);
  fi_cq_tagged_entry entry{};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_cq_sread(program.receives(), &entry, 1, nullptr, 10'000), -FI_EAGAIN);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// One message to itself, looked for until it is there; what the look gave in the end.
ssize_t look(const Program& program, std::uint64_t flags) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    fi_msg_tagged wanted{};
    wanted.addr = FI_ADDR_UNSPEC;
    wanted.tag = kTag;
    if (fi_trecvmsg(program.endpoint(), &wanted, flags | FI_COMPLETION) != 0) break;
    fi_cq_tagged_entry entry{};
    if (fi_cq_read(program.receives(), &entry, 1) == 1) return static_cast<ssize_t>(entry.len);
    fi_cq_err_entry error{};
    if (fi_cq_readerr(program.receives(), &error, 0) != 1 || error.err != FI_ENOMSG) break;
  }
  return -1;
}

TEST(FiEndpoint, WhatIsDiscardedIsGoneWithoutAnError) {
  Program program(false);
  const fi_addr_t self = program.know(program.address());
  std::vector<char> bytes(32768, 1);
  int sent = 0;
  for (const std::size_t size : {std::size_t{64}, bytes.size()}) {
    for (const std::uint64_t how : {std::uint64_t{FI_DISCARD}, std::uint64_t{FI_CLAIM}}) {
      ASSERT_EQ(fi_tsend(program.endpoint(), bytes.data(), size, nullptr, self, kTag, &bytes), 0);
      ASSERT_EQ(look(program, FI_PEEK | how), static_cast<ssize_t>(size));
      fi_msg_tagged claimed{};
      claimed.tag = kTag;
      fi_cq_tagged_entry entry{};
      if (how == FI_CLAIM) {
        ASSERT_EQ(fi_trecvmsg(program.endpoint(), &claimed, FI_CLAIM | FI_DISCARD | FI_COMPLETION), 0);
        EXPECT_EQ(fi_cq_read(program.receives(), &entry, 1), 1);
      }
      const Heard heard = program.listen(static_cast<std::uint64_t>(++sent));
      EXPECT_EQ(heard.completions, 1) << size << " bytes, " << how;
      EXPECT_EQ(fi_cq_read(program.receives(), &entry, 1), -FI_EAGAIN) << size << " bytes, " << how;
    }
  }
}

// Until one message came from `from` to `to`; false: none within 20 s.
bool moves(Program& from, fi_addr_t peer, Program& to) {
  char out[64] = {}, in[64] = {};
  fi_trecv(to.endpoint(), in, sizeof in, nullptr, FI_ADDR_UNSPEC, kTag, 0, in);
  fi_tsend(from.endpoint(), out, sizeof out, nullptr, peer, kTag, out);
  bool came = false, sent = false;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
       !(came && sent) && std::chrono::steady_clock::now() < end;) {
    fi_cq_tagged_entry entry{};
    came = fi_cq_read(to.receives(), &entry, 1) == 1 || came;
    sent = fi_cq_read(from.sends(), &entry, 1) == 1 || sent;
    fi_cq_read(from.receives(), &entry, 1);
  }
  return came && sent;
}

TEST(FiEndpoint, APeerThatStartsAgainAtItsAddressHasWhatIsSentThen) {
  Program program(false);
  auto peer = std::make_unique<Program>(false);
  const sockaddr_in there = peer->address();
  const fi_addr_t known = program.know(there);
  ASSERT_TRUE(moves(*peer, peer->know(program.address()), program));
  ASSERT_TRUE(moves(program, known, *peer));
  peer.reset();
  peer = std::make_unique<Program>(false, std::to_string(ntohs(there.sin_port)).c_str());
  fi_cq_tagged_entry entry{};
  for (int poll = 0; poll < 100'000; ++poll) fi_cq_read(program.receives(), &entry, 1);
  EXPECT_TRUE(moves(program, known, *peer));
}

// The process's sockets: a connection that was made again is another one.
std::set<std::string> sockets() {
  std::set<std::string> open;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one by which the folder is read
    const std::string what = std::filesystem::read_symlink(each.path(), gone).string();
    if (what.starts_with("socket:")) open.insert(what);
  }
  return open;
}

// A connection that failed looks to the other end as if its peer had gone, which it finds is not so.
TEST(FiEndpoint, TwoThatStayKeepTheirConnectionsAfterAnError) {
  setenv("CLUSTAR_STALL_TIMEOUT", "1", 1);
  Program one(false), other(false);
  const fi_addr_t to_other = one.know(other.address()), to_one = other.know(one.address());
  ASSERT_TRUE(moves(one, to_other, other));
  ASSERT_TRUE(moves(other, to_one, one));
  std::vector<char> unwanted(1 << 20);
  ASSERT_EQ(fi_tsend(one.endpoint(), unwanted.data(), unwanted.size(), nullptr, to_other, kTag + 1, nullptr), 0);
  fi_cq_tagged_entry entry{};
  ssize_t got = -FI_EAGAIN;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       got == -FI_EAGAIN && std::chrono::steady_clock::now() < end;) {
    fi_cq_read(other.receives(), &entry, 1);
    got = fi_cq_read(one.sends(), &entry, 1);
  }
  ASSERT_EQ(got, -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(one.sends(), &error, 0), 1);
  EXPECT_EQ(error.err, FI_ETIMEDOUT);
  const auto both_ways = [&] { return moves(one, to_other, other) && moves(other, to_one, one); };
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(both_ways());
  const auto before = sockets();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(both_ways());
  EXPECT_EQ(sockets(), before);
  unsetenv("CLUSTAR_STALL_TIMEOUT");
}

// In a process of its own, since what is wrong is said once.
[[noreturn]] void ask_with(const char* variable, const char* value) {
  setenv(variable, value, 1);
  fi_info* info = nullptr;
  std::exit(get_info(fi_allocinfo(), &info) == -FI_ENODATA ? 0 : 1);
}

TEST(FiSettings, WhatIsWrongIsSaidByTheNameThatTheUserSet) {
  const auto refused = testing::ExitedWithCode(0);
  EXPECT_EXIT(ask_with("FI_CLUSTAR_EAGER_BYTE", "4K"), refused,
              "clustar: unknown setting FI_CLUSTAR_EAGER_BYTE; did you mean FI_CLUSTAR_EAGER_BYTES\\?");
  EXPECT_EXIT(ask_with("FI_CLUSTAR_QWERTZUIOP", "1"), refused, "unknown setting FI_CLUSTAR_QWERTZUIOP;");
  EXPECT_EXIT(ask_with("FI_CLUSTAR_EAGER_BYTES", "many"), refused,
              "clustar: FI_CLUSTAR_EAGER_BYTES = 'many' is not allowed: bytes from 0 to 1048576");
  EXPECT_EXIT(ask_with("FI_CLUSTAR_TRANSPORT", "tpc"), refused, "FI_CLUSTAR_TRANSPORT = 'tpc' is not allowed: auto");
  EXPECT_EXIT(ask_with("CLUSTAR_TRANSPORT", "tpc"), refused, ": CLUSTAR_TRANSPORT = 'tpc' is not allowed: auto");
  EXPECT_EXIT(ask_with("FI_CLUSTAR_TRANSPORT", "ofi"), refused, "libfabric over libfabric");
  EXPECT_EXIT(ask_with("FI_CLUSTAR_IO", "ofi"), refused, "libfabric over libfabric");
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
