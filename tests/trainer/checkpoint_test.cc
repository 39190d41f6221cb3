// Checkpoints: the file, and training that goes on as if it had not been interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "bench/trainer/checkpoint/checkpoints.h"
#include "bench/trainer/data/images.h"
#include "bench/trainer/random.h"
#include "tests/temp_path.h"
#include "tests/trainer/fake_links.h"
#include "tests/trainer/problem.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace fs = std::filesystem;

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<Checkpoint> parsed(const std::string& text) { return parse_checkpoint(std::as_bytes(std::span(text))); }

std::string written(const Facts& facts, const std::vector<ArrayView>& arrays) {
  std::string text;
  const auto checksum = write_checkpoint(facts, arrays, [&](std::span<const std::byte> piece) -> Result<void> {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  });
  EXPECT_TRUE(checksum);
  return text;
}

std::string small_file() {
  const std::vector<float> values{1, 2.5f, -3};
  return written({{"--batch", "50"}, {"ranks", "2"}}, {{"parameters of 1.weight", values}, {"network", {}}});
}

TEST(CheckpointFile, GivesBackWhatWasWritten) {
  const std::string text = small_file();
  const auto checkpoint = parsed(text);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->facts, (Facts{{"--batch", "50"}, {"ranks", "2"}}));
  ASSERT_EQ(checkpoint->arrays.size(), 2u);
  float values[3];
  std::memcpy(values, checkpoint->arrays.at("parameters of 1.weight").data(), sizeof values);
  EXPECT_EQ(values[1], 2.5f);
}

TEST(CheckpointFile, EveryPartAndEveryChangedBitIsRefused) {
  const std::string text = small_file();
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parsed(text.substr(0, size))) << size;
  EXPECT_THAT(parsed(text + "x").error().message, HasSubstr("more follows"));
  EXPECT_THAT(parsed("#!/bin/sh").error().message, HasSubstr("no checkpoint"));
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(parsed(changed)) << bit;
  }
}

TEST(CheckpointFile, AnErrorOfWritingIsPassedOn) {
  int pieces = 0;
  const auto full = write_checkpoint({{"a", "b"}}, {}, [&](std::span<const std::byte>) -> Result<void> {
    if (++pieces < 3) return {};
    return fail(ErrorCode::kSystem, "the disk is full");
  });
  EXPECT_EQ(full.error().message, "the disk is full");
  EXPECT_EQ(pieces, 3);
}

class CheckpointOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = tests::temp_path("checkpoint");
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    file_ = folder_ + "/run.ckpt";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  std::string file_;
};

// What is written is equal in all values, so that a mixture of two would show.
TEST_F(CheckpointOnDisk, AKillLeavesAWholeFile) {
  constexpr std::size_t kFloats = 200'000;
  Rng rng(5);
  int kills = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::vector<float> values(kFloats);
      Checkpoints checkpoints({.file = file_}, {{"model", "m"}}, nullptr);
      for (int i = 1; i < 1000; ++i) {
        std::fill(values.begin(), values.end(), static_cast<float>(i));
        TrainingState state{.epochs = i, .passes = 0, .shared = {{"values", values}}, .own = {}};
        if (!checkpoints.save(state)) _exit(1);
      }
      _exit(0);
    }
    for (int i = 0; i < 10'000 && !fs::exists(file_); ++i) usleep(1000);
    usleep(static_cast<useconds_t>(1000 + rng.below(15000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    kills += WIFSIGNALED(status) ? 1 : 0;
    const std::string text = text_of_file(file_);
    const auto checkpoint = parsed(text);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    std::vector<float> values(kFloats);
    std::memcpy(values.data(), checkpoint->arrays.at("values").data(), kFloats * sizeof(float));
    EXPECT_EQ(checkpoint->facts.at("epochs that are over"), std::to_string(static_cast<int>(values.front())));
    EXPECT_EQ(std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()), values.end());
  }
  EXPECT_GT(kills, 0);
}

TEST_F(CheckpointOnDisk, AFullDiskLeavesTheFileBefore) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  std::vector<float> values(1000, 1.0f);
  TrainingState state{.epochs = 1, .passes = 0, .shared = {{"values", values}}, .own = {}};
  Checkpoints checkpoints({.file = file_}, {}, nullptr);
  ASSERT_TRUE(checkpoints.save(state));
  const std::string before = text_of_file(file_);
  fs::create_symlink("/dev/full", file_ + ".partial");
  const auto full = checkpoints.save(state);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, AllOf(HasSubstr(file_), HasSubstr("No space left")));
  EXPECT_EQ(text_of_file(file_), before);
}

// A run of the same name begins again, and cannot write FILE: what was there goes on.
TEST_F(CheckpointOnDisk, ARerunLeavesTheSetBeforeUntilItHasItsOwn) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  std::vector<float> shared(10, 1.0f);
  std::vector<float> own(10, 2.0f);
  const auto state = [&] {
    return TrainingState{.epochs = 1, .passes = 0, .shared = {{"values", shared}}, .own = {{"residual", own}}};
  };
  ASSERT_TRUE(Checkpoints({.file = file_}, {}, nullptr).save(state()));
  own.assign(10, 3.0f);
  fs::create_symlink("/dev/full", file_ + ".partial");
  ASSERT_FALSE(Checkpoints({.file = file_}, {}, nullptr).save(state()));
  TrainingState loaded = state();
  const auto ok = Checkpoints({.resume = file_}, {}, nullptr).load(loaded);
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(own[0], 2.0f);
  // By another path, and of more ranks and epochs: what is left of those goes, and nothing else.
  for (const char* name : {".epoch7.rank0.0123456789abcdef", ".epoch1.rank3.0123456789abcdef", ".epoch1.rank0.mine",
                           ".epoch1.rank0.0123456789abcdeg"}) {
    std::ofstream(file_ + name) << "x";
  }
  own.assign(10, 4.0f);
  ASSERT_TRUE(Checkpoints({.file = folder_ + "/./run.ckpt"}, {}, nullptr).save(state()));
  EXPECT_THAT(files(),
              ::testing::UnorderedElementsAre("run.ckpt", StartsWith("run.ckpt.epoch1.rank0."),
                                              "run.ckpt.epoch1.rank0.mine", "run.ckpt.epoch1.rank0.0123456789abcdeg"));
  loaded = state();
  ASSERT_TRUE(Checkpoints({.resume = file_}, {}, nullptr).load(loaded));
  EXPECT_EQ(own[0], 4.0f);
}

// Of what is larger than any file of this run, no more is read than its beginning.
TEST_F(CheckpointOnDisk, AFileThatIsFarTooLargeIsRefusedWithoutReadingIt) {
  constexpr std::uintmax_t kHuge = std::uintmax_t{200} << 30;
  std::vector<float> values(1000, 1.0f);
  TrainingState state{.epochs = 1, .passes = 0, .shared = {{"values", values}}, .own = {}};
  ASSERT_TRUE(Checkpoints({.file = file_}, {{"--model", "a"}}, nullptr).save(state));
  std::error_code error;
  fs::resize_file(file_, kHuge, error);
  if (error) GTEST_SKIP() << "no file of 200 GiB here: " << error.message();
  const auto trouble = [&](const Facts& run) {
    return Checkpoints({.resume = file_}, run, nullptr).load(state).error().message;
  };
  EXPECT_THAT(trouble({{"--model", "a"}}), HasSubstr("it has 214748364800 bytes; of this run it has"));
  EXPECT_THAT(trouble({{"--model", "b"}}), HasSubstr("--model: a there, b here"));
  fs::resize_file(file_, 0);
  fs::resize_file(file_, kHuge);
  EXPECT_THAT(trouble({}), HasSubstr("no checkpoint of clustar train"));
}

Problem small_images(const std::string& model, std::size_t side) {
  Problem problem(model, {.image_size = side, .classes = 4, .width_divisor = 16});
  problem.dataset = generate_images(40, side, 4, 1);
  problem.split = *split_dataset(problem.dataset, 1);
  problem.config.batch = 8;
  problem.config.rate = 0.02;
  return problem;
}

class Resume : public CheckpointOnDisk {
 protected:
  std::vector<RankOutcome> run(Problem& problem, int epochs, const std::string& to, const std::string& from) {
    problem.config.epochs = epochs;
    problem.config.checkpoint = {.file = to, .every = 1, .resume = from};
    FakeWorld world(2);
    world.loses = loses;
    return problem.run_ranks(world);
  }
  // Four epochs in one go, and two and two.
  void expect_continuation(Problem problem) {
    const auto whole = run(problem, 4, "", "");
    const auto half = run(problem, 2, file_, "");
    const auto rest = run(problem, 4, file_, file_);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(whole[rank].report) << whole[rank].report.error().message;
      ASSERT_TRUE(half[rank].report) << half[rank].report.error().message;
      ASSERT_TRUE(rest[rank].report) << rest[rank].report.error().message;
      EXPECT_NE(half[rank].parameters, whole[rank].parameters);
      EXPECT_EQ(rest[rank].parameters, whole[rank].parameters);
      EXPECT_EQ(rest[rank].state, whole[rank].state);
      EXPECT_EQ(rest[rank].report->parameters_digest, whole[rank].report->parameters_digest);
      EXPECT_EQ(rest[rank].report->first_epoch, 2);
      ASSERT_EQ(rest[rank].report->epochs.size(), 2u);
      EXPECT_EQ(rest[rank].report->epochs[0].loss, whole[rank].report->epochs[2].loss);
      EXPECT_EQ(rest[rank].report->epochs[1].accuracy, whole[rank].report->epochs[3].accuracy);
    }
  }
  static std::string trouble(const std::vector<RankOutcome>& ranks, std::size_t rank = 0) {
    return ranks[rank].report ? "none" : ranks[rank].report.error().message;
  }

  // See FakeWorld. The all-reduces' numbers begin again in a run that goes on.
  std::function<bool(std::uint64_t, int, int, std::size_t)> loses;
};

TEST_F(Resume, WithMomentumAndWeightDecay) {
  Problem problem("mlp");
  problem.config.weight_decay = 1e-4;
  expect_continuation(problem);
  EXPECT_THAT(files(), ::testing::ElementsAre("run.ckpt"));
}

TEST_F(Resume, WithBatchNorm) { expect_continuation(small_images("resnet50", 32)); }

TEST_F(Resume, WithDropout) { expect_continuation(small_images("alexnet", 64)); }

TEST_F(Resume, WithOverlapAndPrefetch) {
  Problem problem("mlp");
  problem.config.overlap_forward = true;
  problem.config.prefetch = 3;
  expect_continuation(problem);
}

TEST_F(Resume, WithShardedMomentumAndMicroBatches) {
  Problem problem("mlp");
  problem.config.sharding = parallel::Sharding::kZero1;
  problem.config.accumulate = 2;
  problem.plan = plan_of(problem.config, problem.model, 2);
  expect_continuation(problem);
}

// From a scale that is too large: a run that began with it again would skip other steps.
TEST_F(Resume, WithALossScale) {
  for (const parallel::Sharding sharding : {parallel::Sharding::kNone, parallel::Sharding::kZero1}) {
    Problem problem("lr");
    problem.config.precision = Precision::kFloat16;
    problem.config.loss_scale = {.scaling = LossScaling::kDynamic, .scale = kMostLossScale, .interval = 4};
    problem.config.sharding = sharding;
    problem.plan = plan_of(problem.config, problem.model, 2);
    expect_continuation(problem);
    const auto other = [&](LossScaleOptions scale) {
      problem.config.loss_scale = scale;
      return trouble(run(problem, 5, "", file_));
    };
    EXPECT_THAT(other({.scaling = LossScaling::kStatic, .scale = 8}),
                HasSubstr("--loss-scale: dynamic=16777216 there, 8 here"));
    problem.config.precision = Precision::kBfloat16;
    problem.plan = plan_of(problem.config, problem.model, 2);
    EXPECT_THAT(other({}), HasSubstr("--precision: f16 there, bf16 here"));
  }
}

TEST_F(Resume, WithWhatCodecsLeftOut) {
  for (const Codec codec : {Codec::kOneBit, Codec::kTopK}) {
    Problem problem("mlp-small");
    problem.plan = plan_buckets(problem.model.tensor_elements(), 8, 8);
    problem.config.codec.codec = codec;
    problem.config.rate = 0.02;
    expect_continuation(problem);
    // The parts of the epochs before are gone.
    EXPECT_THAT(files(), ::testing::ElementsAre("run.ckpt", StartsWith("run.ckpt.epoch4.rank0."),
                                                StartsWith("run.ckpt.epoch4.rank1.")));
    TearDown();
    SetUp();
  }
}

TEST_F(Resume, WithWhatExchangesLost) {
  // By turns, so that what is lost once arrives later; two epochs are an even number of all-reduces.
  loses = [](std::uint64_t number, int from, int to, std::size_t i) { return from != to && (i + number) % 2 == 0; };
  Problem problem("mlp-small");
  problem.config.exchange = {AllReduce::kAllToAll, proxy::Missing::kResidual};
  expect_continuation(problem);
  EXPECT_THAT(files(), ::testing::ElementsAre("run.ckpt", StartsWith("run.ckpt.epoch4.rank0."),
                                              StartsWith("run.ckpt.epoch4.rank1.")));
}

TEST_F(Resume, AnotherRunIsNamedByItsDifferences) {
  Problem problem("mlp-small");
  ASSERT_EQ(trouble(run(problem, 1, file_, "")), "none");
  problem.config.batch = 40;
  problem.config.seed = 9;
  const std::string message = trouble(run(problem, 2, "", file_), 1);
  EXPECT_THAT(message, AllOf(HasSubstr(file_), HasSubstr("--batch: 50 there, 40 here"),
                             HasSubstr("--seed: 1 there, 9 here"), Not(HasSubstr("--lr"))));
  Problem other("mlp-small");
  other.dataset = generate_digits(400, 2);
  EXPECT_THAT(trouble(run(other, 2, "", file_)), HasSubstr("data set (--data): 400 examples, digest"));
  Problem same("mlp-small");
  EXPECT_THAT(trouble(run(same, 1, "", file_)), AllOf(HasSubstr("end of epoch 1"), HasSubstr("--epochs")));
  const RankOutcome alone = [&] {
    same.config.epochs = 2;
    return same.run({});
  }();
  EXPECT_THAT(alone.report.error().message, HasSubstr("ranks: 2 there, 1 here"));
}

TEST_F(Resume, ARunThatMetItsTargetIsOver) {
  Problem problem("mlp-small");
  problem.config.target_accuracy = 0.1;
  const auto met = run(problem, 20, file_, "");
  ASSERT_EQ(trouble(met), "none");
  ASSERT_LT(met[0].report->epochs.size(), 20u);
  EXPECT_THAT(trouble(run(problem, 20, "", file_)), AllOf(HasSubstr(file_), HasSubstr("--target-accuracy above that")));
  problem.config.target_accuracy = std::nullopt;
  EXPECT_EQ(trouble(run(problem, static_cast<int>(met[0].report->epochs.size()) + 1, "", file_)), "none");
}

TEST_F(Resume, DamageIsNamed) {
  Problem problem("mlp-small");
  problem.config.codec.codec = Codec::kTopK;
  ASSERT_EQ(trouble(run(problem, 1, file_, "")), "none");
  const std::string whole = text_of_file(file_);
  std::ofstream(file_, std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_THAT(trouble(run(problem, 2, "", file_)), AllOf(HasSubstr(file_), HasSubstr("cut off")));
  std::ofstream(file_, std::ios::binary) << whole;
  const std::string part = folder_ + "/" + files()[2];
  ASSERT_THAT(part, StartsWith(file_ + ".epoch1.rank1."));
  fs::copy_file(folder_ + "/" + files()[1], part, fs::copy_options::overwrite_existing);
  const auto ranks = run(problem, 2, "", file_);
  EXPECT_THAT(trouble(ranks, 1), AllOf(HasSubstr(part), HasSubstr("not the part")));
  EXPECT_THAT(trouble(ranks, 0), HasSubstr("rank 1 could not read its checkpoint"));
  fs::remove(part);
  EXPECT_THAT(trouble(run(problem, 2, "", file_), 1), HasSubstr("cannot open '" + part));
}

TEST_F(Resume, CheckpointsAreWrittenWhenTheyAreDue) {
  const Checkpoints every_third({.file = "f", .every = 3}, {}, nullptr);
  EXPECT_FALSE(every_third.is_due(2, false));
  EXPECT_TRUE(every_third.is_due(3, false));
  EXPECT_TRUE(every_third.is_due(4, true));
  EXPECT_FALSE(Checkpoints({.resume = "f"}, {}, nullptr).is_due(3, true));
}

TEST_F(CheckpointOnDisk, WhereNoneCanBeWrittenIsFoundOutBefore) {
  EXPECT_THAT(check_checkpoint_path("/nonexistent/x").error().message, HasSubstr("/nonexistent/x"));
  EXPECT_THAT(check_checkpoint_path(folder_).error().message, HasSubstr("not a regular file"));
  EXPECT_TRUE(check_checkpoint_path(file_));
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace clustar::bench::trainer
