package lockbench;

import java.util.List;
import java.util.Locale;

/** Lines of a Markdown table, and figures as they stand in them. */
final class Cells {
  private Cells() {}

  /** Three digits that matter, thousands apart: `0.417`, `4.17`, `41.7`, `4,170`. */
  static String number(double value) {
    if (Double.isNaN(value)) {
      return "-";
    }
    int decimals = value < 0.9995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return String.format(Locale.ROOT, "%,." + decimals + "f", value);
  }

  static String whole(double value) {
    return String.format(Locale.ROOT, "%,.0f", value);
  }

  static String head(List<String> columns) {
    return row(columns) + "|---|" + "---:|".repeat(columns.size() - 1) + "\n";
  }

  static String row(List<String> cells) {
    return "| " + String.join(" | ", cells) + " |\n";
  }
}
