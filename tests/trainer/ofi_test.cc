// Training over libfabric: what carries the gradients must not show in the trained model.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/trainer/command.h"

namespace clustar::bench::trainer {
namespace {

#if defined(CLUSTAR_PLUGIN) && defined(CLUSTAR_HAVE_OFI)

class TrainOverLibfabric : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override {
    unsetenv("CLUSTAR_TRANSPORT");
    unsetenv("CLUSTAR_OFI_PROVIDER");
  }
  static Outcome train(const std::string& transport, const std::string& results) {
    setenv("CLUSTAR_TRANSPORT", transport.c_str(), 1);
    return run_clustar({"train", "--plugin", CLUSTAR_PLUGIN, "--no-progress", "--model", "mlp-small", "--ranks", "2",
                        "--epochs", "3", "--examples", "1000", "--json", results});
  }
};

TEST_P(TrainOverLibfabric, TrainsAsOverTcp) {
  const TemporaryDirectory dir;
  setenv("CLUSTAR_OFI_PROVIDER", GetParam(), 1);
  const Outcome over_ofi = train("ofi", dir.file("ofi.json"));
  for (const char* absent : {"libfabric.so.1: cannot open", "no such provider here"}) {
    if (over_ofi.err.find(absent) != std::string::npos) GTEST_SKIP() << over_ofi.err;
  }
  ASSERT_EQ(over_ofi.status, 0) << over_ofi.err;
  const Outcome over_tcp = train("tcp", dir.file("tcp.json"));
  ASSERT_EQ(over_tcp.status, 0) << over_tcp.err;
  const auto ofi = dir.read_json("ofi.json").at("results"), tcp = dir.read_json("tcp.json").at("results");
  EXPECT_EQ(ofi.at("transport").at("transport"), "ofi");
  EXPECT_EQ(ofi.at("replicas_identical"), true);
  EXPECT_EQ(ofi.at("steps"), tcp.at("steps"));
  EXPECT_EQ(ofi.at("parameters_digest"), tcp.at("parameters_digest"));
}

INSTANTIATE_TEST_SUITE_P(Providers, TrainOverLibfabric, ::testing::Values("tcp;ofi_rxm", "shm"),
                         [](const auto& one) { return std::string(one.param) == "shm" ? "shm" : "tcp"; });

#else

TEST(TrainOverLibfabric, TrainsAsOverTcp) {
  GTEST_SKIP() << "this build has no libclustar-ofi.so: CLUSTAR_WITH_LIBFABRIC is OFF, or libfabric-dev is missing";
}

#endif

}  // namespace
}  // namespace clustar::bench::trainer
