package lockbench;

import java.util.stream.Collectors;

/** The page that `make bench` writes; the section of this program is between two marks, wrapped at 120 columns. */
final class Page {
  private static final String BEGIN = "<!-- redisson -->";
  private static final String END = "<!-- end of redisson -->";

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

  /** The page with this section between the marks; at its end when it has none. */
  static String with(String page, String section) {
    int begin = page.indexOf(BEGIN);
    int end = page.indexOf(END);
    boolean marked = 0 <= begin && begin < end;
    String before = marked ? page.substring(0, begin) : page.isEmpty() ? "" : page + "\n";
    String after = marked ? page.substring(end + END.length()) : "\n";
    return before + BEGIN + "\n" + wrapped(section) + END + after;
  }
}
