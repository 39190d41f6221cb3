#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "transport/io/verbs/completion.h"
#include "transport/io/verbs/failure.h"

namespace clustar::transport::io::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(VerbsFailure, NamesCallErrnoPlaceAndCause) {
  const Place place{.device = "mlx5_0", .port = 1, .gid_index = 3, .peer = "10.0.0.2 queue pair 17"};
  const Error error = call_failed(Call::kToRtr, EINVAL, place);
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("ibv_modify_qp to RTR on mlx5_0 port 1 GID index 3 to 10.0.0.2 queue pair 17"),
                    HasSubstr("errno 22"), HasSubstr("index 3 is an mlx5 habit")));
  EXPECT_THAT(call_failed(Call::kToRtr, EINVAL, {.device = "mlx5_0", .gid_index = 1}).message, Not(HasSubstr("habit")));
}

TEST(VerbsFailure, KnowsTheUsualCauses) {
  const auto cause = [](Call call, int error) { return likely_cause(call, error, {}); };
  EXPECT_THAT(cause(Call::kRegMr, ENOMEM),
              AllOf(HasSubstr("ulimit -l"), HasSubstr("memlock"), HasSubstr("not mapped")));
  EXPECT_THAT(cause(Call::kCreateCq, ENOMEM), AllOf(HasSubstr("ulimit -l"), Not(HasSubstr("not mapped"))));
  EXPECT_THAT(cause(Call::kRegMr, EFAULT), HasSubstr("nvidia_peermem"));
  EXPECT_THAT(cause(Call::kRegDmaBuf, EOPNOTSUPP), HasSubstr("dma-buf"));
  EXPECT_THAT(cause(Call::kToRtr, ETIMEDOUT), AllOf(HasSubstr("ARP"), HasSubstr("rail")));
  EXPECT_THAT(cause(Call::kOpenDevice, ENODEV), HasSubstr("/dev/infiniband"));
  EXPECT_THAT(cause(Call::kCreateQp, EINVAL), HasSubstr("ibv_devinfo"));
  EXPECT_THAT(cause(Call::kPostSend, ENOMEM), HasSubstr("full"));
  EXPECT_THAT(call_failed(Call::kToInit, EPERM, {}).message, HasSubstr("IPC_LOCK"));
  EXPECT_THAT(call_failed(Call::kQueryPort, EIO, {}).message, HasSubstr("dmesg"));
}

TEST(VerbsFailure, ADmaBufHasAnotherInvalidArgument) {
  EXPECT_THAT(likely_cause(Call::kRegDmaBuf, EINVAL, {}), HasSubstr("behind the dma-buf"));
  EXPECT_THAT(likely_cause(Call::kRegMr, EINVAL, {}), Not(HasSubstr("dma-buf")));
  EXPECT_THAT(call_failed(Call::kForkInit, EINVAL, {}).message,
              AllOf(HasSubstr("ibv_fork_init"), HasSubstr("errno 22"), HasSubstr("RDMAV_FORK_SAFE")));
}

TEST(VerbsCompletion, Error12With129NamesPeerPathTimesAndChecks) {
  const CompletionPlace at{
      .place = {.device = "mlx5_0", .port = 1, .gid_index = 3, .peer = "10.0.0.2 queue pair 17"},
      .queue_pair = 12,
      .retry = {.timeout = 20, .retry_cnt = 7},
  };
  const Error error = completion_failed(IBV_WC_RETRY_EXC_ERR, 0x81, at);
  EXPECT_EQ(error.code, ErrorCode::kRemote);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("mlx5_0 port 1 GID index 3 queue pair 12 to 10.0.0.2 queue pair 17"),
                    HasSubstr("IBV_WC_RETRY_EXC_ERR (status 12, vendor error 129 (0x81"),
                    HasSubstr("8 transmissions (34.4 s at least"), HasSubstr("4791"), HasSubstr("ping")));
}

TEST(VerbsCompletion, BlamesWhoeverItWas) {
  const auto code = [](ibv_wc_status status) { return completion_failed(status, 0, {}).code; };
  EXPECT_EQ(code(IBV_WC_REM_ACCESS_ERR), ErrorCode::kRemote);
  EXPECT_EQ(code(IBV_WC_RNR_RETRY_EXC_ERR), ErrorCode::kRemote);
  EXPECT_EQ(code(IBV_WC_LOC_PROT_ERR), ErrorCode::kInternal);
  EXPECT_EQ(code(IBV_WC_WR_FLUSH_ERR), ErrorCode::kSystem);
  EXPECT_EQ(code(IBV_WC_FATAL_ERR), ErrorCode::kSystem);
}

TEST(VerbsCompletion, EveryStatusHasAMeaning) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    EXPECT_FALSE(status_meaning(static_cast<ibv_wc_status>(status), {}).empty()) << status;
    EXPECT_NE(status_name(static_cast<ibv_wc_status>(status)), nullptr) << status;
  }
  EXPECT_THAT(status_meaning(IBV_WC_WR_FLUSH_ERR, {}), HasSubstr("first error"));
  EXPECT_THAT(status_meaning(IBV_WC_RNR_RETRY_EXC_ERR, {.rnr_retry = 3}), HasSubstr("3 repetitions"));
}

TEST(VerbsCompletion, TimesAreTheSpecifications) {
  using namespace std::chrono_literals;
  EXPECT_EQ(ack_timeout(0), 0ns);
  EXPECT_EQ(ack_timeout(1), 8192ns);
  EXPECT_EQ(ack_timeout(14), 67'108'864ns);
  EXPECT_EQ(retry_horizon({.timeout = 14, .retry_cnt = 7}), 8 * 67'108'864ns);
}

}  // namespace
}  // namespace clustar::transport::io::verbs
