package lockbench;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Collections;
import org.junit.jupiter.api.Test;

/** What others wrote on the page stays. */
class PageTest {
  private static final String TICKETS = "<!-- tickets -->\nwaits\n<!-- end of tickets -->";
  private static final String PAIRS = "<!-- redisson -->\npairs\n<!-- end of redisson -->";
  private static final String BOTH =
      "<!-- redisson -->\npairs\n\n" + TICKETS + "\n<!-- end of redisson -->";

  @Test
  void eachPartReplacesItsOwnSection() {
    String page = "# Before\n\n" + BOTH + "\nafter\n";
    String pairs = Page.with(page, Part.REDISSON, "new\n");
    assertEquals(page.replace("pairs", "new"), pairs);
    assertEquals(page.replace("waits", "new"), Page.with(page, Part.TICKETS, "new\n"));
  }

  @Test
  void aPageWithoutMarksGetsThemAtItsEnd() {
    String page = Page.with("# Before\n", Part.REDISSON, "pairs\n");
    assertEquals("# Before\n\n" + PAIRS + "\n", page);
    assertEquals("# Before\n\n" + BOTH + "\n", Page.with(page, Part.TICKETS, "waits\n"));
    assertEquals(PAIRS + "\n", Page.with("", Part.REDISSON, "pairs\n"));
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
