// What --data takes beside IDX: CIFAR-10, folders of images, texts, and how they are told apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "bench/trainer/data/cifar.h"
#include "bench/trainer/data/image_folder.h"
#include "bench/trainer/data/load.h"
#include "bench/trainer/data/text.h"
#include "bench/trainer/data/text_file.h"
#include "tests/trainer/data/files.h"
#include "tests/trainer/data/text_of.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DataFor kImages{"resnet50", DataKind::kImages, 8, 8, 10};
const DataFor kDigits{"mlp", DataKind::kDigits, 28, 28, 10};
const DataFor kText{"gpt", DataKind::kText, kTextTokens, 1, kTextVocabulary};

std::string trouble(const std::string& path, const DataFor& wanted, bool skip_damaged = false) {
  const auto dataset = load(path, wanted, skip_damaged);
  return dataset ? "none" : dataset.error().message;
}

TEST(Cifar, PlanesBecomePixels) {
  const Folder folder;
  folder.write("data_batch_1.bin", cifar(12));
  auto wanted = kImages;
  wanted.rows = wanted.columns = 32;
  const auto dataset = load(folder.path(), wanted, false);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->size(), 12u);
  EXPECT_EQ(dataset->labels[11], 1);
  const std::string file = cifar(12);
  for (const std::size_t at : {0, 1, 33, 1023}) {
    for (std::size_t colour = 0; colour < 3; ++colour) {
      EXPECT_EQ(dataset->pixels[(5 * 1024 + at) * 3 + colour],
                static_cast<std::uint8_t>(file[5 * kCifarRecord + 1 + colour * 1024 + at]));
    }
  }
  EXPECT_EQ(batch_of(*dataset, {5}).x[3],
            static_cast<float>(dataset->pixels[5 * 3072 + 3]) * kImageScale + kImageOffset);
}

TEST(Cifar, IsResampledForOtherSizesAndItsTestFileIsHeldOut) {
  const Folder folder;
  folder.write("data_batch_1.bin", cifar(12));
  folder.write("data_batch_4.bin", cifar(8));
  folder.write("test_batch.bin", cifar(5));
  const auto dataset = load(folder.path(), kImages, false);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(dataset->source, HasSubstr("CIFAR-10, 3 files"));
  EXPECT_EQ(batch_of(*dataset, {0, 24}).x.size(), 2u * 8 * 8 * 3);
  const auto split = split_dataset(*dataset, 1);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->train, numbers(0, 20));
  EXPECT_EQ(split->held_out, numbers(20, 5));
  const auto alone = load(folder.file("test_batch.bin"), kImages, false);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(split_dataset(*alone, 1)->held_out.size(), 1u);
  EXPECT_NE(digest(*dataset), digest(*alone));
}

TEST(Cifar, WhatIsWrongIsNamed) {
  const Folder folder;
  std::string bad = cifar(3);
  bad[kCifarRecord] = 10;
  EXPECT_THAT(trouble(folder.write("a.bin", bad), kImages),
              AllOf(HasSubstr("a.bin"), HasSubstr("found 10 in record 1 (byte 3073)"), HasSubstr("0 to 9")));
  EXPECT_THAT(trouble(folder.write("b.bin", cifar(2) + "more"), kImages), HasSubstr("2 of them, and 4 bytes"));
  EXPECT_THAT(trouble(folder.write("c.bin", ""), kImages), HasSubstr("c.bin' is empty"));
  auto few = kImages;
  few.classes = 9;
  EXPECT_THAT(trouble(folder.write("d.bin", cifar(20)), few), HasSubstr("10 or more (--classes)"));
}

// cat: 3 images, of which one lies deeper; dog: 2.
void make_folder(const Folder& folder) {
  folder.write("dog/1.ppm", ppm(12, 10, 1));
  folder.write("dog/0.PPM", ppm(9, 9, 2));
  folder.write("cat/b.ppm", ppm(8, 20, 3));
  folder.write("cat/a/z.pgm", "P5 1 1 255\nx");
  folder.write("cat/c.pnm", ppm(30, 30, 4));
  folder.write("cat/.hidden.ppm", "no image");
  folder.write("cat/notes.txt", "no image");
  folder.write("README", "no class");
}

TEST(ImageFolder, ClassesAndFilesInTheOrderOfTheirNames) {
  const Folder folder;
  make_folder(folder);
  const auto dataset = load(folder.path(), kImages, false);
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_THAT(dataset->files, ElementsAre("cat/a/z.pgm", "cat/b.ppm", "cat/c.pnm", "dog/0.PPM", "dog/1.ppm"));
  EXPECT_THAT(dataset->labels, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(dataset->source, HasSubstr("2 classes, 5 images"));
  EXPECT_TRUE(dataset->pixels.empty());
  EXPECT_THAT(batch_of(*dataset, {0}).x, Each(static_cast<float>('x') * kImageScale + kImageOffset));
  const Batch batch = batch_of(*dataset, {4, 1});
  EXPECT_THAT(batch.labels, ElementsAre(1, 0));
  std::vector<std::uint8_t> pixels(8 * 8 * 3);
  const auto square = read_image(bytes_of(ppm(12, 10, 1)));
  resample(square->pixels.data(), square->side, 8, pixels.data());
  EXPECT_EQ(batch.x[17], static_cast<float>(pixels[17]) * kImageScale + kImageOffset);
}

TEST(ImageFolder, AnotherFileIsAnotherDataSet) {
  const Folder folder;
  make_folder(folder);
  const auto before = load(folder.path(), kImages, false);
  folder.write("dog/1.ppm", ppm(12, 11, 1));
  EXPECT_NE(digest(*before), digest(*load(folder.path(), kImages, false)));
}

TEST(ImageFolder, DamageIsNamedWhereItIsNeeded) {
  const Folder folder;
  make_folder(folder);
  folder.write("dog/1.ppm", ppm(12, 10, 1).substr(0, 100));
  const auto dataset = load(folder.path(), kImages, false);
  ASSERT_TRUE(dataset) << dataset.error().message;
  Batch batch;
  EXPECT_TRUE(gather(*dataset, numbers(0, 4), batch));
  const auto damaged = gather(*dataset, numbers(3, 2), batch);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message,
              AllOf(HasSubstr(folder.file("dog/1.ppm")), HasSubstr("at byte 100"), HasSubstr("--skip-damaged")));
}

TEST(ImageFolder, DamagedImagesAreLeftOutOnRequest) {
  const Folder folder;
  make_folder(folder);
  folder.write("cat/b.ppm", "P6 no");
  folder.write("dog/empty.jpg", "");
  folder.write("dog/other.png", "\x89PNG");
  std::filesystem::create_symlink("/nonexistent", folder.file("dog/link.ppm"));
  EXPECT_THAT(trouble(folder.path(), kImages), AllOf(HasSubstr("other.png"), HasSubstr("allowed: JPEG")));
  auto dataset = load(folder.path(), kImages, true);
  ASSERT_TRUE(dataset) << dataset.error().message;
  const std::uint64_t before = digest(*dataset);
  const LeftOut left_out = leave_out_damaged(*dataset);
  EXPECT_EQ(left_out.files, 4u);
  EXPECT_THAT(left_out.first, HasSubstr("cat/b.ppm"));
  EXPECT_THAT(dataset->files, ElementsAre("cat/a/z.pgm", "cat/c.pnm", "dog/0.PPM", "dog/1.ppm"));
  EXPECT_THAT(dataset->labels, ElementsAre(0, 0, 1, 1));
  EXPECT_NE(digest(*dataset), before);
  EXPECT_EQ(batch_of(*dataset, numbers(0, 4)).labels.size(), 4u);
}

TEST(ImageFolder, WhatIsWrongIsNamed) {
  const Folder folder;
  make_folder(folder);
  folder.write("empty/notes.txt", "no image");
  EXPECT_THAT(trouble(folder.path(), kImages), AllOf(HasSubstr("/empty' is the folder of a class"), HasSubstr(".jpg")));
  auto one = kImages;
  one.classes = 2;
  EXPECT_THAT(trouble(folder.path(), one), AllOf(HasSubstr("3 sub-folders"), HasSubstr("2 classes (--classes)")));
  const Folder circle;
  circle.write("class/a.ppm", ppm(3, 3, 3));
  std::filesystem::create_directory_symlink("..", circle.file("class/up"));
  EXPECT_THAT(trouble(circle.path(), kImages), HasSubstr("at most 8 levels deep"));
}

TEST(TextFile, IsWrittenInTheAlphabet) {
  const std::string text = "Ab;c!\t\xff" + std::string(400, 'x');
  const auto dataset = text_dataset(bytes_of(text), "t");
  ASSERT_TRUE(dataset) << dataset.error().message;
  EXPECT_EQ(dataset->size(), 6u);
  EXPECT_EQ(text_of(*dataset, 0).substr(0, 8), "ab,c. -x");
  EXPECT_EQ(dataset->labels[0], kTextAlphabet.find('b'));
  EXPECT_EQ(dataset->labels[63], kTextAlphabet.find('x'));
  EXPECT_THAT(dataset->source, HasSubstr("0.3 % of its bytes"));
  EXPECT_EQ(text_dataset(bytes_of(std::string(5 * 64 + 1, 'x')), "t")->size(), 5u);
}

TEST(TextFile, WhatIsWrongIsNamed) {
  const Folder folder;
  const std::string text(500, 'x');
  EXPECT_THAT(trouble(folder.write("a", std::string(320, 'x')), kText), HasSubstr("321 or more"));
  EXPECT_THAT(trouble(folder.write("b", text + "\n\n" + std::string(1, '\0')), kText),
              AllOf(HasSubstr("b' is no text"), HasSubstr("line 3 (byte 502)")));
}

// The names of CIFAR-10's files say nothing where a text is wanted.
TEST(TextFile, MayHaveAnyName) {
  const Folder folder;
  EXPECT_EQ(trouble(folder.write("corpus.bin", std::string(500, 'x')), kText), "none");
  EXPECT_THAT(trouble(folder.write("data_batch_1.bin", cifar(5)), kText), HasSubstr("is no text: a byte of 0"));
}

TEST(Load, WhatIsThereHasToSuitTheModel) {
  const Folder folder;
  make_folder(folder);
  const std::string text = folder.write("text", std::string(500, 'x'));
  const std::string images = folder.write("t10k-images-idx3-ubyte", "");
  const Folder nothing;
  EXPECT_THAT(trouble(folder.file("none"), kText), HasSubstr("there is no file or directory"));
  EXPECT_THAT(trouble(text, kImages), AllOf(HasSubstr("that of no data set of images"), HasSubstr("data_batch_1.bin")));
  EXPECT_THAT(trouble(text, kDigits), HasSubstr("model mlp takes IDX files"));
  EXPECT_THAT(trouble(images, kText), HasSubstr("is an IDX data set; model gpt takes a text file"));
  EXPECT_THAT(trouble(nothing.path(), kImages), HasSubstr("without any data that is known"));
  EXPECT_THAT(trouble(nothing.path(), kText), HasSubstr("a text file"));
  const Folder classes;
  make_folder(classes);
  EXPECT_THAT(trouble(classes.path(), kDigits), HasSubstr("is a folder of folders; model mlp takes"));
  EXPECT_THAT(trouble(classes.write("x.bin", cifar(5)), kDigits), HasSubstr("is a CIFAR-10 data set"));
}

}  // namespace
}  // namespace clustar::bench::trainer
