#include "bench/ab/cluster/starter.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "bench/ab/cluster/program.h"

namespace clustar::bench::ab::cluster {
namespace {

constexpr std::chrono::seconds kAnswerBound{20};

struct Remedy {
  Starter starter;
  const char* said;
  const char* remedy;
};
// In Open MPI's and Slurm's own words, of their help texts.
constexpr std::array<Remedy, 10> kRemedies{{
    {Starter::kMpirun, "allow-run-as-root", "as root, add --launcher-args '--allow-run-as-root'"},
    {Starter::kMpirun, "not enough slots",
     "give the hosts more slots= in the hostfile, or --launcher-args '--oversubscribe'"},
    {Starter::kMpirun, "unable to find the specified executable", "clustar must be at the same path on every host"},
    {Starter::kMpirun, "could not access or execute an executable", "clustar must be at the same path on every host"},
    {Starter::kMpirun, "Open hostfile failed", "name a hostfile that is there by --launcher-args '--hostfile FILE'"},
    {Starter::kMpirun, "unable to reliably start one or more daemons",
     "every host must be reachable by ssh without a password, with Open MPI at the same path; other interfaces than "
     "mpirun's choice by --mca oob_tcp_if_include NAME"},
    {Starter::kSrun, "Unable to allocate resources",
     "run it inside an allocation (salloc, sbatch), or give --launcher-args '-p PARTITION'"},
    {Starter::kSrun, "No such file or directory", "clustar must be at the same path on every host"},
    // PyTorch 1.13 looks for its zero flag among an enum's members, where Python 3.11 has it no more.
    {Starter::kTorchrun, "'NoneType' object has no attribute 'get'",
     "this torchrun cannot tell that nothing is redirected, as 1.13 under Python 3.11; say it of a rank that is not "
     "there: --launcher-args '--redirects 9:1 --tee 9:1'"},
    {Starter::kTorchrun, "No module named", "torchrun needs PyTorch: its own Python must find torch"},
}};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

std::string line_with(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  if (at == std::string::npos) return "";
  const std::size_t from = text.rfind('\n', at) + 1;  // npos + 1 is 0
  return text.substr(from, text.find('\n', at) - from);
}

}  // namespace

const char* to_string(Starter starter) {
  switch (starter) {
    case Starter::kMpirun: return "mpirun";
    case Starter::kTorchrun: return "torchrun";
    case Starter::kSrun: return "srun";
  }
  return "?";
}

Result<std::vector<std::string>> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && is_blank(c)) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      *word += text[++i];
    } else {
      *word += c;
    }
  }
  if (quote != 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("a quote ({}) has no end in: {}", quote, text));
  }
  if (word) words.push_back(*word);
  return words;
}

Result<void> set_root(const std::string& text, Spec& spec) {
  std::string host = text;
  int port = spec.root_port;
  const std::size_t colon = text.rfind(':');
  const bool has_port = colon != std::string::npos && (text.front() != '[' || text[colon - 1] == ']');
  bool good = true;
  if (has_port) {
    host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    good = parsed.ec == std::errc() && parsed.ptr == end && port >= 1 && port <= 65535;
  }
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  good = good && !host.empty() && (in_brackets || host.find(':') == std::string::npos);
  if (!good) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--root '{}'; allowed: HOST or HOST:PORT of rank 0's host as all ranks reach it, as "
                            "10.0.0.1, node1:29500 or [fd00::1]:29500",
                            text));
  }
  spec.root_host = host;
  spec.root_port = port;
  return {};
}

std::vector<std::string> words_of(const Spec& spec, int ranks, const std::vector<std::string>& names,
                                  const std::string& port) {
  const std::string count = std::to_string(ranks);
  std::vector<std::string> words{to_string(spec.starter)};
  switch (spec.starter) {
    case Starter::kMpirun:
      words.insert(words.end(), {"-n", count});
      // By name: a value may hold what -x takes apart.
      for (const std::string& name : names) words.insert(words.end(), {"-x", name});
      break;
    case Starter::kTorchrun:
      words.insert(words.end(), {"--nnodes=1", "--nproc_per_node=" + count, "--max_restarts=0",
                                 "--master_addr=127.0.0.1", "--master_port=" + port, "--no_python"});
      break;
    case Starter::kSrun:
      // ALL, and no list of names: a value with a comma would end there.
      words.insert(words.end(), {"--ntasks=" + count, "--export=ALL", "--kill-on-bad-exit=1"});
      break;
  }
  words.insert(words.end(), spec.more.begin(), spec.more.end());
  return words;
}

std::string remedy(Starter starter, const std::string& said) {
  for (const Remedy& one : kRemedies) {
    if (one.starter == starter && said.find(one.said) != std::string::npos) return one.remedy;
  }
  return "";
}

Result<std::string> find_version(Starter starter) {
  const std::string name = to_string(starter);
  if (!on_path(name)) {
    const char* const where = starter == Starter::kMpirun     ? "Open MPI has it (Debian: openmpi-bin)"
                              : starter == Starter::kTorchrun ? "PyTorch has it (Debian: python3-torch)"
                                                              : "Slurm has it, on the hosts of its cluster";
    return fail(ErrorCode::kUnavailable, fmt::format("--launcher {0}: there is no {0} on PATH; {1}", name, where));
  }
  // torchrun knows no such option.
  if (starter == Starter::kTorchrun) return std::string();
  const char* const mark = starter == Starter::kMpirun ? "Open MPI" : "slurm";
  std::string all;
  ProgramOptions options{.words = {name, "--version"}, .environment = {}, .on_line = {}, .limit = kAnswerBound};
  options.on_line = [&](const std::string& line) {
    all += line + "\n";
    return true;
  };
  const auto ended = run_program(options);
  if (!ended) return tl::unexpected(ended.error());
  std::string line = line_with(all + ended->last_words, mark);
  if (ended->status == 0 && ended->signal == 0 && !line.empty()) return line;
  return fail(ErrorCode::kUnavailable,
              fmt::format("--launcher {0}: the {0} on PATH is not {1}'s, which alone is known here: {0} --version says "
                          "'{2}'",
                          name, starter == Starter::kMpirun ? "Open MPI" : "Slurm",
                          all.empty() ? ended->last_words : all.substr(0, all.find('\n'))));
}

}  // namespace clustar::bench::ab::cluster
