#include "bench/lossy/report/svg.h"

#include <fmt/format.h>

#include <regex>

#include "bench/report/page.h"

namespace clustar::bench::lossy_report {
namespace {

constexpr int kRoleGreen = 1, kSlotGreen = 2;  // the green part of #0001xx and #0002xx

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// Everything from `begin` to the next `end`, each time.
void remove_spans(std::string& text, const std::string& begin, const std::string& end) {
  for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    const std::size_t last = text.find(end, at + begin.size());
    if (last == std::string::npos) return;
    text.erase(at, last + end.size() - at);
  }
}

std::string variable(int green, int blue) {
  if (green == kSlotGreen) return fmt::format("var(--s{})", blue);
  if (green != kRoleGreen) return "currentColor";
  switch (blue) {
    case 1: return "var(--c)";
    case 2: return "var(--dim)";
    case 3: return "var(--rule)";
    default: return "var(--text)";
  }
}

std::string with_variables(const std::string& svg) {
  static const std::regex colour(R"(rgb\( *\d+, *(\d+), *(\d+)\))");
  std::string result;
  auto last = svg.begin();
  for (std::sregex_iterator match(svg.begin(), svg.end(), colour), end; match != end; ++match) {
    result.append(last, svg.begin() + match->position());
    result += variable(std::stoi((*match)[1]), std::stoi((*match)[2]));
    last = svg.begin() + match->position() + match->length();
  }
  return result.append(last, svg.end());
}

}  // namespace

std::string slot_colour(int slot) { return fmt::format("'#0002{:02x}'", slot); }

std::string label_token(std::size_t index) { return fmt::format("L{:03}L", index); }

Result<std::string> inline_svg(const std::string& gnuplot_svg, const std::string& name,
                               const std::vector<std::string>& labels) {
  static const std::regex opening("<svg[^>]*viewBox=\"(0 0 [0-9]+ [0-9]+)\"[^>]*>");
  std::smatch head;
  const std::size_t end = gnuplot_svg.rfind("</svg>");
  if (!std::regex_search(gnuplot_svg, head, opening) || end == std::string::npos) {
    return fail(ErrorCode::kInternal, "gnuplot wrote no SVG; a newer version may write another form of it");
  }
  const auto begin = static_cast<std::size_t>(head.position() + head.length());
  std::string body = gnuplot_svg.substr(begin, end - begin);
  // Markers that nothing here uses; ids that would come once per plot; texts about gnuplot that show as tooltips.
  remove_spans(body, "<defs>", "</defs>");
  remove_spans(body, "<title>", "</title>");
  remove_spans(body, "<desc>", "</desc>");
  remove_spans(body, " id=\"gnuplot_", "\"");
  remove_spans(body, " font-family=\"", "\"");
  replace_all(body, " color=\"black\"", "");
  replace_all(body, " color=\"white\"", "");
  replace_all(body, " stroke-linecap=\"butt\" stroke-linejoin=\"miter\"", "");
  static const std::regex empty_group("<g [^>]*>\\s*</g>\\s*");
  body = with_variables(std::regex_replace(body, empty_group, ""));
  for (std::size_t i = 0; i < labels.size(); ++i) replace_all(body, label_token(i), report::escaped(labels[i]));
  return fmt::format("<svg class=\"plot\" viewBox=\"{}\" role=\"img\" aria-label=\"{}\">{}</svg>\n", head[1].str(),
                     report::escaped(name), body);
}

}  // namespace clustar::bench::lossy_report
