// What a program of libfabric hears of its sends.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/libfabric_provider/program.h"
#include "tests/libfabric_provider/receiver.h"

namespace clustar::libfabric_shim::provider {
namespace {

class Completions : public ::testing::Test {
 protected:
  int send(Program& from, fi_addr_t to, std::size_t bytes) {
    return static_cast<int>(fi_tsend(from.endpoint(), bytes_.data(), bytes, nullptr, to, kTag, &bytes_));
  }
  std::vector<char> bytes_ = std::vector<char>(1 << 20, 5);
};

TEST_F(Completions, EverySendIsCountedAndOnlyThoseThatAskHaveAnEntry) {
  Receiver receiver;
  Program program(true);
  const fi_addr_t to = program.know(receiver.address());
  EXPECT_EQ(fi_tinject(program.endpoint(), bytes_.data(), 8, to, kTag), 0);
  EXPECT_EQ(send(program, to, 64), 0);
  EXPECT_EQ(send(program, to, 32768), 0);
  iovec part{bytes_.data(), 64};
  fi_msg_tagged message{};
  message.msg_iov = &part;
  message.iov_count = 1;
  message.addr = to;
  message.tag = kTag;
  message.context = &bytes_;
  EXPECT_EQ(fi_tsendmsg(program.endpoint(), &message, FI_COMPLETION), 0);
  const Heard heard = program.listen(4);
  EXPECT_EQ(heard.completions, 1);
  EXPECT_TRUE(heard.errors.empty());
  EXPECT_EQ(program.counted(), 4u);
}

TEST_F(Completions, ASendToAPeerThatIsGoneFailsOnce) {
  for (const std::size_t bytes : {std::size_t{65536}, std::size_t{1} << 20}) {
    Receiver receiver;
    Program program(false);
    const fi_addr_t to = program.know(receiver.address());
    ASSERT_EQ(send(program, to, 64), 0);
    ASSERT_EQ(program.listen(1).completions, 1);
    receiver.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_EQ(send(program, to, bytes), 0);
    const Heard heard = program.listen(2);
    EXPECT_EQ(heard.errors.size(), 1u) << bytes;
    EXPECT_EQ(heard.completions, 0) << bytes;
    EXPECT_EQ(program.counted_errors(), 1u) << bytes;
  }
}

TEST_F(Completions, ASendWithoutAnEntryTellsItsErrorAllTheSame) {
  Receiver receiver;
  Program program(true);
  const fi_addr_t to = program.know(receiver.address());
  receiver.end();
  ASSERT_EQ(send(program, to, 64), 0);
  const Heard heard = program.listen(1);
  EXPECT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(program.counted_errors(), 1u);
}

TEST_F(Completions, ClosingDeliversWhatWasInjected) {
  setenv("FI_CLUSTAR_EAGER_BYTES", "0", 1);  // which is no reason to wait for its receive
  Receiver receiver;
  Program program(false);
  const fi_addr_t to = program.know(receiver.address());
  ASSERT_EQ(fi_tinject(program.endpoint(), bytes_.data(), 64, to, kTag), 0);
  program.close_endpoint();
  EXPECT_EQ(receiver.next_length(), 64u);
  unsetenv("FI_CLUSTAR_EAGER_BYTES");
}

// There the last messages may come when their receiver has hardly accepted the connection, and their sender is gone.
TEST_F(Completions, ClosingDeliversItOverALossyNetworkToo) {
  setenv("FI_CLUSTAR_TRANSPORT", "mlt", 1);
  setenv("CLUSTAR_INJECT_FAULTS", "loss=0.3", 1);
  for (int round = 0; round < 6; ++round) {
    Receiver receiver;
    Program program(false);
    ASSERT_EQ(fi_tinject(program.endpoint(), bytes_.data(), 64, program.know(receiver.address()), kTag), 0);
    program.close_endpoint();
    ASSERT_EQ(receiver.next_length(), 64u) << round;
  }
  unsetenv("FI_CLUSTAR_TRANSPORT");
  unsetenv("CLUSTAR_INJECT_FAULTS");
}

TEST_F(Completions, LibfabricOverLibfabricIsRefused) {
  setenv("FI_PROVIDER_PATH", PROVIDER_FOLDER, 1);
  setenv("FI_CLUSTAR_TRANSPORT", "ofi", 1);
  fi_info* const hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup("clustar");
  fi_info* info = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info), -FI_ENODATA);
  fi_freeinfo(hints);
  unsetenv("FI_CLUSTAR_TRANSPORT");
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
