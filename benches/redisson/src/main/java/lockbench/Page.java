package lockbench;

/** The page that others write too: what is ours stands between two marks. */
final class Page {
  private static final String BEGIN = "<!-- redisson -->";
  private static final String END = "<!-- end of redisson -->";

  private Page() {}

  /** The page with this section between the marks; at its end when it has none. */
  static String with(String page, String section) {
    int begin = page.indexOf(BEGIN);
    int end = page.indexOf(END);
    boolean marked = 0 <= begin && begin < end;
    String before = marked ? page.substring(0, begin) : page.isEmpty() ? "" : page + "\n";
    String after = marked ? page.substring(end + END.length()) : "\n";
    return before + BEGIN + "\n" + section + END + after;
  }
}
