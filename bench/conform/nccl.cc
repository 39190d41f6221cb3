#include "bench/conform/nccl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace clustar::bench::conform {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "tests/nccl_host/conform.py";
constexpr int kLookEvery = 100;                         // ms
constexpr auto kEndsWithin = std::chrono::seconds(10);  // its cases, too, once it is told to
constexpr int kNotStarted = 127;

// The program in the clone of the project that this executable was built in, or the one that we are in.
Result<std::string> find_program() {
  std::error_code error;
  for (auto from : {std::filesystem::read_symlink("/proc/self/exe", error), std::filesystem::current_path(error)}) {
    for (; from.has_relative_path(); from = from.parent_path()) {
      if (std::filesystem::is_regular_file(from / kProgram, error)) return (from / kProgram).string();
    }
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("--nccl needs a clone of clustar's repository, which builds NCCL's host code: there is no {} "
                          "above this executable or above the current folder; run it from within a clone",
                          kProgram));
}

// A program in a process group of its own, whose standard output is read by lines.
class Program {
 public:
  explicit Program(std::vector<std::string> words) {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      why(errno);
      return;
    }
    output_ = ends[0];
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) why(errno);
    if (pid_ == 0) start(words, ends[1], parent);
    if (pid_ > 0) setpgid(pid_, pid_);
    close(ends[1]);
  }
  ~Program() {
    if (pid_ > 0) end();
    if (output_ >= 0) close(output_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Why it was not started; empty: it was.
  const std::string& failure() const { return failure_; }

  // The next line; nothing once it ended, or `stop` says so.
  std::optional<std::string> line(const std::function<bool()>& stop) {
    while (true) {
      if (const auto end = text_.find('\n'); end != std::string::npos) {
        std::string found = text_.substr(0, end);
        text_.erase(0, end + 1);
        return found;
      }
      if (output_ < 0) return std::nullopt;
      pollfd watched{output_, POLLIN, 0};
      const int ready = poll(&watched, 1, kLookEvery);
      if (stop()) return std::nullopt;
      if (ready <= 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t n = read(output_, buffer.data(), buffer.size());
      if (n <= 0) return std::nullopt;
      text_.append(buffer.data(), static_cast<std::size_t>(n));
    }
  }

  // Its exit status, having waited; 128 and the signal's number where one ended it. Nothing once `stop` says so.
  std::optional<int> wait(const std::function<bool()>& stop) {
    int status = 0;
    for (pid_t ended = 0; pid_ > 0 && ended != pid_;) {
      ended = waitpid(pid_, &status, WNOHANG);
      if (ended < 0) return kNotStarted;
      if (ended == 0 && stop()) return std::nullopt;
      if (ended == 0) usleep(1000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Compilers of a build, too; the program itself ends its case.
  void end() {
    kill(-pid_, SIGTERM);
    const auto latest = Clock::now() + kEndsWithin;
    while (Clock::now() < latest) {
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = -1;
        return;
      }
      usleep(1000);
    }
    kill(-pid_, SIGKILL);
    wait([] { return false; });
  }

 private:
  void why(int error) { failure_ = std::string("cannot start python3: ") + std::strerror(error); }

  [[noreturn]] static void start(std::vector<std::string>& words, int output, pid_t parent) {
    setpgid(0, 0);
    // So that it ends its case when we are killed.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    _exit(kNotStarted);
  }

  int output_ = -1;
  pid_t pid_ = -1;
  std::string text_, failure_;
};

Outcome to_outcome(const std::string& name) {
  return name == "pass" ? Outcome::kPass : name == "skip" ? Outcome::kSkip : Outcome::kFail;
}

// What the program says, until it ends; `take` gets each line but errors.
Result<void> read_all(const std::vector<std::string>& words, const std::function<void(const nlohmann::json&)>& take,
                      const std::function<int()>& interrupted) {
  Program program(words);
  if (!program.failure().empty()) return fail(ErrorCode::kSystem, program.failure());
  std::optional<Error> error;
  while (const auto line = program.line([&] { return interrupted() != 0; })) {
    const auto said = nlohmann::json::parse(*line, nullptr, false);
    if (!said.is_object()) continue;  // of a library that prints
    if (said.contains("error")) {
      error = Error{said["status"] == 2 ? ErrorCode::kInvalidArgument : ErrorCode::kSystem, said["error"]};
    } else {
      take(said);
    }
  }
  if (interrupted() != 0) return {};
  const auto status = program.wait([&] { return interrupted() != 0; });
  if (!status) return {};
  if (error) return tl::unexpected(*error);
  if (*status == kNotStarted) return fail(ErrorCode::kUnavailable, "--nccl needs python3 on the PATH; install it");
  if (*status != 0)
    return fail(ErrorCode::kSystem, fmt::format("{} ended with status {}, see above", kProgram, *status));
  return {};
}

std::vector<std::string> words_of(const std::string& program, const NcclOptions& options) {
  std::vector<std::string> words = {"python3", "-B", program, "--plugin", options.plugin, "--only", options.only};
  for (const auto& [name, value] : {std::pair{"--timeout", options.timeout}, std::pair{"--freeze", options.freeze},
                                    std::pair{"--death-bound", options.death_bound}}) {
    words.insert(words.end(), {name, std::to_string(value)});
  }
  if (!options.source.empty()) words.insert(words.end(), {"--source", options.source});
  if (options.emulated_gpu) words.emplace_back("--emulated-gpu");
  return words;
}

}  // namespace

Result<Report> run_over_nccl(const NcclOptions& options, const OnStart& on_start, const OnEnd& on_end,
                             const std::function<int()>& interrupted) {
  const auto begin = Clock::now();
  const auto program = find_program();
  if (!program) return tl::unexpected(program.error());
  Report report{options.plugin, {}, options.emulated_gpu, {}, 0, NcclRun{}};
  if (options.plugin != kSocket) {
    auto versions = probe(options.plugin);
    if (!versions) return tl::unexpected(versions.error());
    report.versions = std::move(*versions);
  }
  const auto take = [&](const nlohmann::json& said) {
    if (said.contains("nccl")) {
      report.nccl->version = said["nccl"];
      report.nccl->library = said["library"];
    } else if (said.contains("start")) {
      if (on_start) on_start(said["start"], 0);
    } else {
      report.lines.push_back({said["name"], said["rule"], said["source"], said["version"],
                              Finding{to_outcome(said["outcome"]), said["reason"], said["seconds"]}});
      if (on_end) on_end(report.lines.back());
    }
  };
  const auto read = read_all(words_of(*program, options), take, interrupted);
  if (!read) return tl::unexpected(read.error());
  report.nccl->interrupted_by = interrupted();
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

Result<std::string> list_nccl_cases(const std::string& only) {
  const auto program = find_program();
  if (!program) return tl::unexpected(program.error());
  std::string out;
  const auto take = [&](const nlohmann::json& said) {
    out += fmt::format("{}\n    {}\n    NCCL: {}\n", said["name"].get<std::string>(), said["rule"].get<std::string>(),
                       said["source"].get<std::string>());
  };
  const auto read = read_all({"python3", "-B", *program, "--list", "--only", only}, take, [] { return 0; });
  if (!read) return tl::unexpected(read.error());
  return out;
}

}  // namespace clustar::bench::conform
