// The envelope of every JSON file that a command writes: command, version, machine, results.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::report {

// {command, version, machine{cpu, cores, memory_gb, kernel, tcp_congestion_control}, results}
nlohmann::json envelope(const std::string& command, nlohmann::json results);

// The processor's model, as the kernel names it.
std::string processor();

// A word of a shell command, in quotes where it needs them.
std::string shell_word(const std::string& word);

// As this process was called, as a shell takes it: what repeats its results.
std::string command_line();

// Whether write_json could write there, to be found out before long work; it leaves no file behind. "-" and "" always
// can.
Result<void> check_writable(const std::string& path);

// "-" is standard output. Errors name the path and errno. A file is replaced in one step, so that a process that is
// killed leaves the one from before, or none; written in place where it is a link or a device, has another owner or
// another name, or where its folder takes no new files.
Result<void> write_text(const std::string& text, const std::string& path);

// The same of pretty-printed JSON; what is not UTF-8 in it becomes U+FFFD.
Result<void> write_json(const nlohmann::json& document, const std::string& path);

// A whole file of at most 256 MiB, without a wait. Errors name the path and why: a folder, a pipe and a device are
// none.
Result<std::string> read_text(const std::string& path);

}  // namespace clustar::bench::report
