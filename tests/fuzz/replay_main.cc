// Runs a fuzz target over the files of a folder, and over a fixed stream of random inputs, without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<std::uint8_t> input((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++files;
  }
  if (files == 0) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 1;
  }
  std::mt19937 random(1);
  constexpr int kRandomInputs = 500;
  for (int i = 0; i < kRandomInputs; ++i) {
    std::vector<std::uint8_t> input(random() % 300);
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random() % (i % 2 == 0 ? 256 : 8));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu corpus files and %d random inputs\n", files, kRandomInputs);
  return 0;
}
