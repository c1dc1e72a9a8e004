package lockbench;

import java.util.stream.Collectors;

/** The page that `make bench` writes; each section of this program is between two marks, wrapped at 120 columns. */
final class Page {
  private static final int COLUMNS = 120;

  private Page() {}

  /** The section with its prose wrapped; tables, headings and comments keep their lines. */
  static String wrapped(String section) {
    return section
        .lines()
        .map(line -> line.matches("[|#!<].*") ? line : wrappedLine(line))
        .collect(Collectors.joining("\n", "", "\n"));
  }

  private static String wrappedLine(String line) {
    String indent = line.startsWith("- ") ? "  " : "";
    StringBuilder text = new StringBuilder();
    int width = 0;
    for (String word : line.split(" ")) {
      boolean first = width == 0;
      boolean fits = width + 1 + word.length() <= COLUMNS;
      text.append(first ? "" : fits ? " " : "\n" + indent).append(word);
      width = first ? word.length() : (fits ? width + 1 : indent.length()) + word.length();
    }
    return text.toString();
  }

  /**
   * The page with this section between the marks of its part; at its end when it has none. The marks
   * of tickets are inside those of Redisson: `make bench` keeps what is between the latter.
   */
  static String with(String page, Part part, String section) {
    Cut all = Cut.of(page, Part.REDISSON);
    Cut own = Cut.of(all.between, Part.TICKETS);
    String pairs = part == Part.REDISSON ? wrapped(section) : own.before;
    String tickets = part == Part.TICKETS ? wrapped(section) : own.between;
    String text = pairs.strip() + "\n";
    if (!tickets.isBlank()) {
      text += "\n" + marked(Part.TICKETS, tickets.strip() + "\n") + "\n";
    }
    String before = all.before.isBlank() ? "" : all.before.stripTrailing() + "\n\n";
    return before + marked(Part.REDISSON, text) + "\n" + all.after.stripLeading();
  }

  private static String marked(Part part, String text) {
    return begin(part) + "\n" + text + end(part);
  }

  private static String begin(Part part) {
    return "<!-- " + part.mark() + " -->";
  }

  private static String end(Part part) {
    return "<!-- end of " + part.mark() + " -->";
  }

  /** A text before, between and after the marks of a part; all of it is before them if it has none. */
  private record Cut(String before, String between, String after) {
    static Cut of(String text, Part part) {
      int begin = text.indexOf(begin(part));
      int end = text.indexOf(end(part));
      if (begin < 0 || end < begin) {
        return new Cut(text, "", "");
      }
      return new Cut(
          text.substring(0, begin),
          text.substring(begin + begin(part).length(), end),
          text.substring(end + end(part).length()));
    }
  }
}
