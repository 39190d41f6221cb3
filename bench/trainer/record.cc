#include "bench/trainer/record.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>

namespace clustar::bench::trainer {

using nlohmann::json;

json to_record(const Progress& progress) {
  return {{"progress",
           {{"epoch", progress.epoch},
            {"epochs", progress.epochs},
            {"step", progress.step},
            {"steps", progress.steps},
            {"epoch_over", progress.epoch_over},
            {"learns", progress.learns},
            {"emulated", progress.emulated},
            {"loss", progress.loss},
            {"accuracy", progress.accuracy},
            {"images_per_second", progress.images_per_second}}}};
}

json to_record(const Error& error) {
  return {{"error", {{"code", static_cast<int>(error.code)}, {"message", error.message}}}};
}

bool from_record(const json& record, Progress& progress) {
  const auto found = record.find("progress");
  if (found == record.end()) return false;
  // JSON has no NaN or infinity: those arrive as null.
  const auto number = [&](const char* key) { return (*found)[key].is_number() ? (*found)[key].get<double>() : 0.0; };
  progress.epoch = found->value("epoch", 0);
  progress.epochs = found->value("epochs", 0);
  progress.step = found->value("step", std::size_t{0});
  progress.steps = found->value("steps", std::size_t{0});
  progress.epoch_over = found->value("epoch_over", false);
  progress.learns = found->value("learns", true);
  progress.emulated = found->value("emulated", false);
  progress.loss = number("loss");
  progress.accuracy = number("accuracy");
  progress.images_per_second = number("images_per_second");
  return true;
}

bool from_record(const json& record, Error& error) {
  const auto found = record.find("error");
  if (found == record.end()) return false;
  error.code = static_cast<ErrorCode>(found->value("code", 0));
  error.message = found->value("message", std::string("no message"));
  return true;
}

bool write_record(int fd, const json& record) {
  // Replaced, not thrown: an error's text may quote bytes of a file that are no UTF-8.
  const std::string line = record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t n = write(fd, line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace clustar::bench::trainer
