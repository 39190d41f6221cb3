// NCCL's and our variables as NCCL sees them: the environment, then what its files add.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace clustar::bench::doctor {

class NcclVariables {
 public:
  struct Value {
    std::string text;
    std::string source;  // "environment", or a file's path
  };

  // `environment` in the form of environ: "NAME=value". Only names that begin with NCCL_, CLUSTAR_ or LD_LIBRARY_PATH
  // are kept.
  static NcclVariables of(const std::vector<std::string>& environment);
  // What a file of NCCL's adds (src/misc/param.cc): a line is NAME=value, '#' in its first column a comment; what is
  // set already stays. Any name counts there, as NCCL gives all of them to setenv.
  void add_file(const std::string& path, const std::string& text);

  // A file that was not read, and why.
  void add_unread(std::string why) { unread_.push_back(std::move(why)); }

  std::optional<std::string> get(const std::string& name) const;
  const std::map<std::string, Value>& all() const { return values_; }
  // Lines of files that something else won over: "NAME=value in /etc/nccl.conf does not count: it is 'x'
  // (environment)".
  const std::vector<std::string>& overruled() const { return overruled_; }
  const std::vector<std::string>& unread() const { return unread_; }

 private:
  std::map<std::string, Value> values_;
  std::vector<std::string> overruled_;
  std::vector<std::string> unread_;
};

// Of this process: its environment, then NCCL_CONF_FILE, or ~/.nccl.conf where that is not set, then /etc/nccl.conf.
// Only plain files of at most 1 MiB are read.
NcclVariables variables_here();

}  // namespace clustar::bench::doctor
