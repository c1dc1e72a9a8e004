package lockbench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Collections;
import org.junit.jupiter.api.Test;

/** What others wrote on the page stays. */
class PageTest {
  private static final String FRESH = "<!-- redisson -->\nours\n<!-- end of redisson -->";

  @Test
  void theSectionBetweenTheMarksIsReplaced() {
    String page = "# Before\n\n<!-- redisson -->\nolder\n<!-- end of redisson -->\n\nafter\n";
    assertEquals("# Before\n\n" + FRESH + "\n\nafter\n", Page.with(page, "ours\n"));
  }

  @Test
  void aPageWithoutMarksGetsThemAtItsEnd() {
    assertEquals("# Before\n\n" + FRESH + "\n", Page.with("# Before\n", "ours\n"));
    assertEquals(FRESH + "\n", Page.with("", "ours\n"));
  }

  @Test
  void proseIsWrappedAndTablesAreNot() {
    String words = String.join(" ", Collections.nCopies(30, "word"));
    String[] lines = Page.wrapped("- " + words + "\n| " + words + " |\n").split("\n");
    assertEquals(116, lines[0].length());
    assertEquals("  word", lines[1].substring(0, 6));
    assertEquals("| " + words + " |", lines[2]);
  }
}
