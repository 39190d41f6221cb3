// What CLI11 would say of unknown words in words of its own: which one, and what may have been meant.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace clustar::bench::cli {

// A command that is missing or unknown. "" when the words name a command, or CLI11 has to say what they are. `path`:
// the words before them.
std::string wrong_command(const CLI::App& app, const std::string& path, std::span<char*> words);

// After a CLI::ParseError with words that nothing took: the first of these in `words`, the command line's, and the
// option that it may have been.
std::string unknown_word(const CLI::App& app, std::span<char*> words);

}  // namespace clustar::bench::cli
