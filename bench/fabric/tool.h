// Runs `ip` and `tc`, bounded and quiet.
#pragma once

#include <string>
#include <vector>

#include "bench/fabric/signals.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct ToolOutput {
  int status = 0;   // exit status, or 128 + the signal that ended it
  std::string err;  // standard error without the last newline
};

class Tools {
 public:
  // Finds ip and tc on PATH and in the sbin folders; kUnavailable naming the package. `held_fd` is a descriptor that
  // every tool inherits. `signals` must outlive this.
  static Result<Tools> find(const HeldSignals& signals, int held_fd);

  // `ip [-n NAMESPACE] -batch -` fed with `lines`; the same for tc. `needs` completes the error: "needs ...".
  // kSystem when the tool fails, takes more than 20 s, or is interrupted; it has ended then.
  Result<void> ip_batch(const std::string& in_namespace, const std::string& lines, const std::string& needs) const;
  Result<void> tc_batch(const std::string& in_namespace, const std::string& lines, const std::string& needs) const;

 private:
  Tools(const HeldSignals& signals, int held_fd) : signals_(&signals), held_fd_(held_fd) {}
  Result<void> batch(const std::string& tool, const std::string& in_namespace, const std::string& lines,
                     const std::string& needs) const;
  Result<ToolOutput> run(const std::vector<std::string>& arguments, const std::string& input) const;

  const HeldSignals* signals_;
  int held_fd_;
  std::string ip_;
  std::string tc_;
};

}  // namespace clustar::bench::fabric
