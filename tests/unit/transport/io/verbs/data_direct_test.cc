// Data direct with a libmlx5 that is a fake, with the symbol versions of a real one.
#include "transport/io/verbs/data_direct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace clustar::transport::io::verbs {
namespace {

using ::testing::HasSubstr;

class DataDirectOfMlx5 : public ::testing::Test {
 protected:
  // `kind`: as the fake has it.
  DataDirectProbe probe(int kind) {
    context_.device = kind == 0 ? nullptr : &device_;
    context_.num_comp_vectors = kind;
    domain_.context = &context_;
    return library_.probe(&domain_, "mlx5_0");
  }

  DataDirect library_{CLUSTAR_FAKE_MLX5};
  ibv_device device_{};
  ibv_context context_{};
  ibv_pd domain_{};
};

TEST_F(DataDirectOfMlx5, IsFoundWithThePathOfItsFunction) {
  const DataDirectProbe found = probe(2);
  EXPECT_TRUE(found.supported) << found.text;
  EXPECT_EQ(found.pci_path, "/sys/devices/pci0009:00/0009:01:00.1");
}

TEST_F(DataDirectOfMlx5, WhatLacksItIsToldApart) {
  EXPECT_THAT(probe(0).text, HasSubstr("mlx5_0 is no mlx5 device"));
  EXPECT_THAT(probe(1).text, HasSubstr("mlx5dv_get_data_direct_sysfs_path on mlx5_0: errno 19 (ENODEV)"));
  EXPECT_THAT(probe(3).text, HasSubstr("errno 95 (EOPNOTSUPP)"));
  for (const int kind : {0, 1, 3}) EXPECT_FALSE(probe(kind).supported);
}

TEST_F(DataDirectOfMlx5, ARegistrationAsksForIt) {
  probe(2);
  const gdr::MemoryRef memory{gdr::MemoryKind::kDmaBuf, nullptr, 8192, 7, 4096};
  const ibv_mr* const made = library_.register_dma_buf(&domain_, memory, 0, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->pd, &domain_);
  EXPECT_EQ(made->length, 8192u + 4096u);
  EXPECT_EQ(made->lkey, static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(made->rkey, 1u);
  probe(1);
  EXPECT_EQ(library_.register_dma_buf(&domain_, memory, 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DataDirectOfMlx5, WithoutTheLibraryEveryAnswerSaysSo) {
  const DataDirect none("libmlx5-that-is-not-there.so.1");
  EXPECT_THAT(none.probe(&domain_, "mlx5_0").text, HasSubstr("libmlx5-that-is-not-there.so.1"));
  EXPECT_EQ(none.register_dma_buf(&domain_, {}, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(DataDirectOfMlx5, ALibraryWithoutTheVersionIsNamed) {
  const DataDirect old("libc.so.6");
  EXPECT_THAT(old.probe(&domain_, "mlx5_0").text, HasSubstr("mlx5dv_is_supported of MLX5_1.8"));
}

}  // namespace
}  // namespace clustar::transport::io::verbs
