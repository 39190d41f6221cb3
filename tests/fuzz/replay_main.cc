// Runs a fuzz target over files and over all files of folders, without libFuzzer. With a folder also over a fixed
// stream of random inputs.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

const char* current = "";  // for the handler

// Says which input it was, then lets the signal do what it does.
void name_the_input(int signal_number) {
  const char before[] = "crashed by ";
  // Nothing can be done here when standard error is closed.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, before, sizeof(before) - 1);
  written = write(STDERR_FILENO, current, std::strlen(current));
  written = write(STDERR_FILENO, "\n", 1);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void run_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<std::uint8_t> input((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string name = path.string();
  current = name.c_str();
  LLVMFuzzerTestOneInput(input.data(), input.size());
  current = "";
}

// What is about the inputs, and none itself.
bool is_input(const fs::path& path) { return path.filename() != "README.md"; }

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && is_input(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void run_random_inputs(int count) {
  std::mt19937 random(1);
  current = "a random input";
  for (int i = 0; i < count; ++i) {
    std::vector<std::uint8_t> input(random() % 300);
    for (auto& byte : input) byte = static_cast<std::uint8_t>(random() % (i % 2 == 0 ? 256 : 8));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    const auto before = signal(signal_number, name_the_input);
    if (before != SIG_DFL) signal(signal_number, before);  // a sanitizer's, which says more
  }
  std::size_t files = 0;
  bool folders = false;
  for (int i = 1; i < argc; ++i) {
    if (!fs::exists(argv[i])) {
      std::fprintf(stderr, "there is no %s\n", argv[i]);
      return 2;
    }
    const bool folder = fs::is_directory(argv[i]);
    folders = folders || folder;
    for (const fs::path& file : folder ? files_of(argv[i]) : std::vector<fs::path>{argv[i]}) {
      run_file(file);
      ++files;
    }
  }
  if (files == 0) {
    std::fprintf(stderr, "no inputs in %s\n", argv[1]);
    return 1;
  }
  constexpr int kRandomInputs = 500;
  if (folders) run_random_inputs(kRandomInputs);
  std::printf("inputs: %zu from files, %d at random\n", files, folders ? kRandomInputs : 0);
  return 0;
}
