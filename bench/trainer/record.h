// What a rank process tells the process that launched it: one JSON object per line, on a pipe of its own, so that
// standard output stays free.
//   {"progress": {...}}   {"results": {...}}   {"error": {"code": n, "message": "..."}}
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/trainer/trainer.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

inline constexpr int kReportFd = 3;  // where a launched rank finds its pipe

nlohmann::json to_record(const Progress& progress);
nlohmann::json to_record(const Error& error);
// Nothing when `record` is of another kind.
bool from_record(const nlohmann::json& record, Progress& progress);
bool from_record(const nlohmann::json& record, Error& error);

// Blocks until all is written. False when nobody reads any more.
bool write_record(int fd, const nlohmann::json& record);

}  // namespace clustar::bench::trainer
